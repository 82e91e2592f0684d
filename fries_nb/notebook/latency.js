const BESIDE = 100; // pixels for the axes, until the plot knows its own width

// Draws the run: its newest part and what is older, which Python sends apart. BokehJS comes from the installed wheel through the kernel, never from a network.
async function bokehOf(model) {
  const wanted = model.get("version");
  const found = () => (globalThis.Bokeh?.version === wanted ? globalThis.Bokeh : globalThis.Bokeh?.[wanted]);
  if (found()) return found();
  const loading = (globalThis.__friesBokeh ??= {}); // of each version, since kernels may have several
  loading[wanted] ??= (async () => {
    const loader = await model.widget_manager.get_model(model.get("loader"));
    const script = document.createElement("script");
    script.textContent = loader.get("code");
    document.head.append(script);
  })();
  try {
    await loading[wanted];
  } catch (error) {
    delete loading[wanted]; // the next view tries anew
    throw error;
  }
  return found() ?? globalThis.Bokeh;
}

function isDark() {
  const told = document.body.dataset.jpThemeLight;
  return told ? told === "false" : matchMedia("(prefers-color-scheme: dark)").matches;
}

// Lines on dark pages, as the pictures that are kept in notebooks have them.
const NIGHT = { "#0072B2": "#56B4E9", "#D55E00": "#ff8a3d", "#009E73": "#2fc79a" };
const DAY = Object.fromEntries(Object.entries(NIGHT).map((pair) => pair.reverse()));

function colour(models, dark) {
  const [ink, soft, line, paper] = dark
    ? ["#e6e9ed", "#a3acb8", "#3a424c", "#15191e"]
    : ["#1b1f24", "#57606a", "#d0d7de", "#ffffff"];
  const colours = {
    axis_label_text_color: ink, major_label_text_color: soft, axis_line_color: line, major_tick_line_color: line,
    label_text_color: ink, grid_line_color: line,
  };
  for (const model of models) {
    for (const [name, value] of Object.entries(colours))
      if (name in model.properties && model[name] !== null) model[name] = value;
    if (model.type === "Text") model.text_color = { value: ink };
    // Labels among lines stand on paper, or they could not be read.
    if (model.type === "Text" && model.background_fill_alpha?.value < 1) model.background_fill_color = { value: paper };
    const line = model.properties.line_color && model.line_color?.value;
    const other = (dark ? NIGHT : DAY)[line];
    if (other) model.line_color = { value: other };
  }
}

// What is not known is drawn as a gap; JSON has no NaN for it.
function columns(shown) {
  return Object.fromEntries(Object.entries(shown).map(([name, values]) => [name, values.map((one) => one ?? NaN)]));
}

const parsed = new WeakMap(); // what is older and the marks change seldom, and are needed at each update
function read(model, name) {
  const kept = parsed.get(model) ?? parsed.set(model, {}).get(model);
  const text = model.get(name);
  if (kept[name]?.text !== text) kept[name] = { text, value: JSON.parse(text) };
  return kept[name].value;
}

// What is older in front of what is new; of a message between the two that is still to come, nothing is there twice.
function joined(older, newer) {
  const at = older.at ?? older.xs.map((line) => line.at(-1));
  const until = (newer.at ?? newer.xs.map((line) => line[0]))[0] ?? Infinity;
  const end = at.findIndex((one) => one >= until);
  return Object.fromEntries(Object.entries(newer).map(
    ([name, values]) => [name, [...(end < 0 ? older[name] : older[name].slice(0, end)), ...values]],
  ));
}

// The run without the labels, which depend on the range that is shown.
function runOf(model) {
  const [newer, older, marks] = ["window", "older", "marks"].map((name) => read(model, name));
  const both = ["points", "queues", "bands", "means"].map((name) => [name, joined(older[name], newer[name])]);
  return { ...newer, ...Object.fromEntries(both), lines: marks.lines, said: marks.said };
}

const pen = document.createElement("canvas").getContext("2d");
pen.font = "11px helvetica, Arial, sans-serif";
const wide = (words) => pen.measureText(words).width;

function fitted(words, width) {
  if (wide(words) <= width) return words;
  let end = words.length;
  while (end > 0 && wide(`${words.slice(0, end)}…`) > width) end -= 1;
  return `${words.slice(0, end)}…`;
}

const [LANES, NEAR, BESIDE_LABEL, GAP, LONGEST, SHORT] = [3, 60, 14, 3, 400, 90];

// The labels in a range, in lanes in which none overlap, newest first. As `laid_out` of report/latency.py, which says
// why; but the reader chooses the range here, which may have many marks: so where there is no room, a label is cut
// shorter or stands at the other side of its line before it is left out.
function labelled(said, [from, to], width) {
  const labels = { at: [], lane: [], words: [], align: [], offset: [], foot: [] };
  const scale = width / (to - from), free = Array(LANES).fill(Infinity);
  const inside = (at) => at >= from && at <= to;
  for (const [at, plain, partner, both] of said.filter(([at]) => inside(at)).sort((one, other) => other[0] - one[0])) {
    const near = partner !== null && inside(partner) && Math.abs(partner - at) * scale <= NEAR;
    const words = near ? both : plain;
    if (!words) continue;
    const x = (at - from) * scale, room = [width - x - GAP, x - GAP];
    const first = Number(wide(words) > room[0] && room[1] > room[0]);
    for (const [ends, most] of [[first, LONGEST], [1 - first, LONGEST], [first, SHORT], [1 - first, SHORT]]) {
      const text = fitted(words, Math.min(most, room[ends]));
      if (ends !== first && text !== words && room[ends] < SHORT) continue; // its number would be cut
      const [left, right] = ends ? [x - wide(text), x] : [x, x + wide(text)];
      const lane = free.findIndex((end) => right + BESIDE_LABEL <= end);
      if (lane < 0) continue;
      free[lane] = left;
      const label = { at, lane, words: text, align: ends ? "right" : "left", offset: ends ? -GAP : GAP, foot: -0.4 };
      for (const [name, value] of Object.entries(label)) labels[name].push(value);
      break;
    }
  }
  return labels;
}

const APART = 20; // pixels between checkpoints, at least: nearer ones would cover the curves, and have no lines
function legible(lines, [from, to], most) {
  const is = lines.at.map((at, place) => lines.dash[place] === "dotted" && at >= from && at <= to);
  const stays = is.filter(Boolean).length <= most ? () => true : (_, place) => !is[place];
  return Object.fromEntries(Object.entries(lines).map(([name, values]) => [name, values.filter(stays)]));
}

// Puts the run into the described figures, so that they never stand there empty.
function fill(described, shown) {
  if (described === null || typeof described !== "object") return;
  const { name, attributes } = described;
  if (name === "ColumnDataSource" && shown[attributes?.name])
    attributes.data = { type: "map", entries: Object.entries(columns(shown[attributes.name])) };
  else Object.values(described).forEach((part) => fill(part, shown));
}

// Jupyter makes a view before it is in the page, and takes cells that are out of sight out of it; Bokeh can only draw in
// what is there and has a width.
function shown(box, signal) {
  return new Promise((resolve) => {
    const look = new ResizeObserver(() => {
      if (!signal.aborted && !(box.isConnected && box.offsetWidth > 0)) return;
      look.disconnect();
      resolve();
    });
    look.observe(box);
    signal.addEventListener("abort", () => {
      look.disconnect();
      resolve();
    });
  });
}

// The views of the figures; null if the element was taken away for good before it was shown.
async function embedded(Bokeh, model, box, signal) {
  for (;;) {
    await shown(box, signal);
    if (signal.aborted) return null;
    const item = JSON.parse(model.get("item"));
    const run = runOf(model);
    fill(item.doc, { ...run, labels: labelled(run.said, run.across.at, box.offsetWidth - BESIDE) });
    try {
      return await Bokeh.embed.embed_item({ ...item, target_id: null }, box);
    } catch (error) {
      if (box.isConnected) throw error; // else it was taken away meanwhile, and may come back
    }
  }
}

function render({ model, el }) {
  const [bar, box] = [document.createElement("div"), document.createElement("div")];
  bar.className = "fries-latency-range";
  el.classList.add("fries-latency");
  el.replaceChildren(bar, box);
  const removed = new AbortController();
  // Not waited for: Jupyter puts the view into the page only when this function is over.
  const drawing = draw(model, bar, box, removed.signal).catch((error) => {
    box.textContent = `The plot cannot be drawn: ${error.message}`;
    return () => {};
  });
  return async () => {
    removed.abort();
    (await drawing)();
  };
}

const same = (one, other) => one[0] === other[0] && one[1] === other[1];

// Buttons for the ranges; the one that is shown is pressed.
function buttonsIn(bar, choose) {
  const made = Object.entries({ follow: "Follow", whole: "Whole run" }).map(([aim, words]) => {
    const button = document.createElement("button");
    button.textContent = words;
    button.title = aim === "follow" ? "The last three minutes, or since the last request" : "From the beginning";
    button.addEventListener("click", () => choose(aim));
    return [aim, button];
  });
  bar.replaceChildren(...made.map(([, button]) => button));
  return (aim) => made.forEach(([one, button]) => button.setAttribute("aria-pressed", String(one === aim)));
}

// Draws, and keeps drawing what Python sends; returns what takes it away.
async function draw(model, bar, box, signal) {
  const Bokeh = await bokehOf(model);
  const views = await embedded(Bokeh, model, box, signal);
  if (views === null) return () => {};
  const view = Array.isArray(views) ? views[0] : [...views][0] ?? views;
  const models = [...view.model.document._all_models.values()];
  const named = (name) => models.filter((one) => one.name === name);
  const sources = models.filter((one) => one.type === "ColumnDataSource" && one.name);
  const [across] = named("across");
  const [labels] = named("labels");
  const plots = models.filter((one) => "inner_width" in one.properties);
  const lines = sources.find((one) => one.name === "lines");
  const tickers = models.filter((one) => one.type === "AdaptiveTicker");
  const clocks = models.filter((one) => one.formatter?.name === "time");
  let dark, run, set;
  let aim = "follow"; // the range that is shown: that, the whole run, or where the reader has zoomed to
  const press = buttonsIn(bar, (one) => {
    aim = one;
    move();
  });
  // What depends on the range that is shown.
  const look = () => {
    const [shown, width] = [[across.start, across.end], plots[0]?.inner_width || box.offsetWidth - BESIDE];
    labels.data = labelled(run.said, shown, width);
    for (const one of named("limits")) one.data = { ...run.limits, at: run.limits.at.map(() => Math.max(shown[0], 0)) };
    const ticks = shown[0] < run.across.at[0] ? run.ticks.whole : run.ticks.at;
    const [start, end] = [ticks[0], ticks.at(-1)];
    for (const one of named("latency"))
      one.setv("ticks" in one.properties ? { ticks } : { start, end, reset_start: start, reset_end: end });
    const inSeconds = shown[1] < 120 || shown[1] - shown[0] < 10;
    for (const one of clocks) {
      one.formatter.format = inSeconds ? "0,0.[00]" : "00:00:00";
      if (one.axis_label) one.axis_label = inSeconds ? "seconds" : "hours:minutes:seconds";
    }
    for (const one of tickers) one.desired_num_ticks = Math.max(2, Math.min(6, Math.floor(width / (inSeconds ? 40 : 70))));
    lines.data = legible(run.lines, shown, width / APART);
    press(aim);
  };
  const move = () => {
    const { at: follow, whole } = run.across;
    const range = { follow, whole }[aim] ?? [across.start, across.end];
    set = range;
    across.setv({ reset_start: follow[0], reset_end: follow[1], start: range[0], end: range[1] });
    look();
  };
  // The reader has zoomed, panned or reset.
  const moved = () => {
    const shown = [across.start, across.end];
    if (same(shown, set)) return;
    set = shown;
    aim = same(shown, run.across.at) ? "follow" : same(shown, run.across.whole) ? "whole" : "";
    look();
  };
  const paint = () => {
    if (dark !== isDark()) colour(models, (dark = isDark()));
    run = runOf(model);
    for (const one of named("bands")) if (one.type === "LegendItem") one.visible = run.bands.xs.length > 0;
    for (const source of sources) if (run[source.name] && source.name !== "limits" && source !== lines) source.data = columns(run[source.name]);
    move();
  };
  // A run that has ended sends no more, but the reader may still choose another theme.
  const themes = new MutationObserver(paint);
  themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  const setting = matchMedia("(prefers-color-scheme: dark)");
  setting.addEventListener("change", paint);
  model.on("change:window", paint);
  model.on("change:marks", paint);
  paint();
  const signals = [plots[0]?.properties.inner_width, across.properties.start, across.properties.end];
  const slots = [look, moved, moved];
  signals.forEach((one, number) => one?.change.connect(slots[number]));
  return () => {
    signals.forEach((one, number) => one?.change.disconnect(slots[number]));
    themes.disconnect();
    setting.removeEventListener("change", paint);
    model.off("change:window", paint);
    model.off("change:marks", paint);
    (views.clear ?? view.remove)?.call(views.clear ? views : view);
  };
}
export default { render };
