const BESIDE = 100; // pixels for the axes, until the plot knows its own width

// Draws the window that Python keeps. BokehJS comes from the installed wheel through the kernel, never from a network.
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

// The window with the labels that are laid out for the widest plot that fits.
function windowOf(model, width) {
  const shown = JSON.parse(model.get("window"));
  const widths = Object.keys(shown.labels).map(Number).sort((a, b) => a - b);
  const fitting = widths.filter((one) => one <= width).at(-1) ?? widths[0];
  return { ...shown, labels: shown.labels[fitting] };
}

// Puts the window into the described figures, so that they never stand there empty.
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
    fill(item.doc, windowOf(model, box.offsetWidth - BESIDE));
    try {
      return await Bokeh.embed.embed_item({ ...item, target_id: null }, box);
    } catch (error) {
      if (box.isConnected) throw error; // else it was taken away meanwhile, and may come back
    }
  }
}

function render({ model, el }) {
  const box = document.createElement("div");
  el.classList.add("fries-latency");
  el.replaceChildren(box);
  const removed = new AbortController();
  // Not waited for: Jupyter puts the view into the page only when this function is over.
  const drawing = draw(model, box, removed.signal).catch((error) => {
    box.textContent = `The plot cannot be drawn: ${error.message}`;
    return () => {};
  });
  return async () => {
    removed.abort();
    (await drawing)();
  };
}

// Draws, and keeps drawing what Python sends; returns what takes it away.
async function draw(model, box, signal) {
  const Bokeh = await bokehOf(model);
  const views = await embedded(Bokeh, model, box, signal);
  if (views === null) return () => {};
  const view = Array.isArray(views) ? views[0] : [...views][0] ?? views;
  const models = [...view.model.document._all_models.values()];
  const sources = models.filter((one) => one.type === "ColumnDataSource" && one.name);
  const axis = models.filter((one) => one.name === "latency");
  const across = models.filter((one) => one.name === "across");
  const plots = models.filter((one) => "inner_width" in one.properties);
  const keys = models.filter((one) => one.type === "LegendItem" && one.name === "bands");
  let dark, range;
  const paint = () => {
    if (dark !== isDark()) colour(models, (dark = isDark()));
    const shown = windowOf(model, plots[0]?.inner_width || box.offsetWidth - BESIDE);
    const [from, to] = shown.across.at;
    for (const one of across) {
      const follows = range === undefined || (one.start === range[0] && one.end === range[1]); // else the reader has zoomed
      one.setv({ reset_start: from, reset_end: to, ...(follows ? { start: from, end: to } : {}) });
    }
    range = [from, to];
    const ticks = shown.ticks.at;
    const [start, end] = [ticks[0], ticks.at(-1)];
    for (const one of axis) one.setv("ticks" in one.properties ? { ticks } : { start, end, reset_start: start, reset_end: end });
    for (const one of keys) one.visible = shown.bands.xs.length > 0;
    for (const source of sources) if (shown[source.name]) source.data = columns(shown[source.name]);
  };
  // A run that has ended sends no more, but the reader may still choose another theme.
  const themes = new MutationObserver(paint);
  themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  const setting = matchMedia("(prefers-color-scheme: dark)");
  setting.addEventListener("change", paint);
  model.on("change:window", paint);
  plots[0]?.properties.inner_width.change.connect(paint);
  paint();
  return () => {
    plots[0]?.properties.inner_width.change.disconnect(paint);
    themes.disconnect();
    setting.removeEventListener("change", paint);
    model.off("change:window", paint);
    (views.clear ?? view.remove)?.call(views.clear ? views : view);
  };
}
export default { render };
