// Shows the dataflow. The picture is put in once; afterwards only attributes and texts of what is there change.
const PATIENCE_MS = 1500;
const [ROOM, LEAST_ZOOM] = [0.46, 0.75]; // share of the window's height for a picture, unless it would be too small
const WIDE = 640; // pixels from which on a picture has a row of its own where the plot does not fit beside it
const LITTLE = 220; // pixels: a line on an operator, the tabs, and a few rows
const WHOLE = "Full"; // short, since a narrow panel has the plot beside
const MUCH = 0.5; // share of time from which on a box says it in its colour
const SAMPLE = `<svg class="fries-dag-svg" width="28" height="22"><g>
  <rect class="ring" x="2" y="1" width="24" height="20" rx="6"/><rect class="box" x="5" y="4" width="18" height="14" rx="4"/>
</g></svg>`;

function sampled([state, words]) {
  const entry = document.createElement("span");
  entry.innerHTML = SAMPLE;
  entry.querySelector("g").dataset.state = state;
  entry.append(words);
  return entry;
}

// Says that a click waits while the kernel does not answer: it is busy with a cell, and the front end has no other way.
function sayingWhatWaits(model, el, place) {
  let asked;
  const quiet = () => {
    clearTimeout(asked);
    asked = undefined;
    place.textContent = "";
  };
  const ask = (event) => {
    const view = el.closest(".fries-live") ?? el;
    if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
    if (asked !== undefined || !view.contains(event.target) || !event.target.closest("button, g.node") || event.target.closest(".fries-dag-tools")) return;
    model.send({ event: "ping" });
    asked = setTimeout(() => { place.textContent = "The kernel is busy: this click takes effect after the cell."; }, PATIENCE_MS);
  };
  const answered = (content) => { if (content.event === "pong") quiet(); };
  // The buttons are beside this element, and Jupyter moves it; so the page is listened to, while it is shown, and before
  // the picture keeps a click to itself.
  document.addEventListener("click", ask, true);
  el.addEventListener("keydown", ask, true);
  model.on("msg:custom", answered);
  return () => {
    quiet();
    document.removeEventListener("click", ask, true);
    model.off("msg:custom", answered);
  };
}

// Buttons that size the picture: fitted to the width it has, by steps, or to the whole screen.
function sizing(el, host, tools) {
  let zoom = 0; // times its own size; 0 is fitted
  const picture = () => host.querySelector("svg");
  // A picture that is fitted leaves room for what is below it, as long as it can be read.
  const fitted = (box) => Math.min(1, Math.max(LEAST_ZOOM, (ROOM * innerHeight) / box.height));
  const size = () => {
    const svg = picture();
    if (!svg) return;
    const box = svg.viewBox.baseVal;
    svg.style.width = zoom || !document.fullscreenElement ? `${(zoom || fitted(box)) * box.width}px` : "";
    svg.style.maxWidth = zoom ? "none" : "";
    el.classList.toggle("wide", fitted(box) * box.width > WIDE);
  };
  const by = (factor) => () => {
    const svg = picture();
    const now = zoom || svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    zoom = Math.min(8, Math.max(0.1, now * factor));
    size();
  };
  const fit = () => {
    zoom = 0;
    size();
  };
  const view = () => el.closest(".fries-live") ?? el; // with the plot and the form, if there are any
  const whole = async () => {
    if (document.fullscreenElement) await document.exitFullscreen();
    else await view().requestFullscreen();
  };
  const buttons = { "\u2212": ["Smaller", by(1 / 1.25)], "+": ["Larger", by(1.25)], Fit: ["Fit the width", fit] };
  if (document.fullscreenEnabled) buttons[WHOLE] = ["Show the live view on the whole screen", whole];
  tools.replaceChildren(...Object.entries(buttons).map(([words, [title, clicked]]) => {
    const button = document.createElement("button");
    [button.type, button.textContent, button.title] = ["button", words, title];
    button.setAttribute("aria-label", title);
    button.addEventListener("click", clicked);
    return button;
  }));
  const turned = () => {
    const last = tools.lastChild;
    if (document.fullscreenEnabled) last.textContent = document.fullscreenElement === view() ? "Leave full screen" : WHOLE;
    fit();
  };
  document.addEventListener("fullscreenchange", turned);
  return { size, end: () => document.removeEventListener("fullscreenchange", turned) };
}

// Each box is a gauge: from the left how busy its operator is, from the right how long it is held back.
function gauged(node) {
  const box = node.querySelector(".box");
  const [x, y, width, height] = ["x", "y", "width", "height"].map((name) => Number(box.getAttribute(name)));
  const room = width - 3;
  const bar = (name) => {
    const one = made(node, "rect", { class: `gauge ${name}`, x: x + 1.5, y: y + 1.5, width: 0, height: height - 3, rx: 6.5 });
    box.after(one);
    return one;
  };
  const [held, works] = [bar("blocked"), bar("busy")];
  return (busy, blocked) => {
    const [most, rest] = [Math.min(1, busy) * room, Math.min(1, blocked) * room];
    works.setAttribute("width", most);
    held.setAttribute("width", rest);
    held.setAttribute("x", x + 1.5 + room - rest);
    node.dataset.load = blocked >= MUCH ? "blocked" : busy >= MUCH ? "busy" : "";
  };
}

function made(parent, name, attributes) {
  const one = document.createElementNS(parent.namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
  parent.append(one);
  return one;
}

const ROWS = { waits: "row that has met no target", old: "row of the old version", new: "row of the new version" };
const DOTS = 3; // rows that are seen on an edge
const ENVELOPE = "M-8,-5.5 H8 V5.5 H-8 Z M-8,-5.5 L0,1 L8,-5.5";

// A step of a replay: rows by the functions that they have met, the message on its way past them, and the markers.
function played(host, { rows = {}, messages = [], markers = [] }) {
  host.querySelectorAll(".played").forEach((one) => one.remove());
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const line = (number) => host.querySelector(`g.edge[data-edge="${number}"] .line`);
  const moves = (one, path, more) => made(one, "animateMotion", { path, ...more });
  const once = (one, path) => moves(one, path, { dur: still ? "1ms" : "1s", begin: "indefinite", fill: "freeze" }).beginElement();
  for (const [number, version] of Object.entries(rows)) {
    const way = line(number);
    for (let place = 0; place < DOTS; place += 1) {
      const is = version === "both" ? (place === DOTS - 1 ? "old" : "new") : version; // the older ones are ahead
      const row = made(way.parentNode, "rect", { class: `played row ${is}`, x: -3.5, y: -3.5, width: 7, height: 7, rx: is === "new" ? 0 : 3.5 });
      if (still || version === "waits") {
        const { x, y } = way.getPointAtLength((0.35 + 0.2 * place) * way.getTotalLength());
        row.setAttribute("transform", `translate(${x} ${y})`);
      } else moves(row, way.getAttribute("d"), { dur: "2.4s", begin: `-${0.8 * place}s`, repeatCount: "indefinite" });
    }
  }
  for (const name of messages) {
    const node = [...host.querySelectorAll("g.node")].find((one) => one.dataset.operator === name);
    const picture = node.ownerSVGElement.viewBox.baseVal;
    const box = node.querySelector(".box").getBBox();
    const [left, top] = [9 - node.parentNode.transform.baseVal.consolidate().matrix.e, -4];
    const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
    const sent = made(node.parentNode, "g", { class: "played message" });
    made(sent, "path", { d: ENVELOPE });
    once(sent, picture.height > picture.width ? `M${left},${top} L${left},${y} L${box.x},${y}` : `M${left},${top} L${x},${top} L${x},${box.y}`);
  }
  for (const number of markers) {
    const way = line(number);
    once(made(way.parentNode, "circle", { class: "played travelling", r: 6 }), way.getAttribute("d"));
  }
}

// Scrolls to what has all of a selected operator, if little of it is in sight.
function seeDrawer(drawer) {
  if (!drawer) return;
  const look = new IntersectionObserver(([{ intersectionRect }]) => {
    look.disconnect();
    if (intersectionRect.height < LITTLE) drawer.scrollIntoView({ block: "nearest", behavior: "smooth" });
  });
  look.observe(drawer);
}

function render({ model, el }) {
  const names = ["fries-dag-tools", "fries-dag", "fries-dag-legend", "fries-dag-note", "fries-dag-waits"];
  const [tools, host, legend, note, waits] = names.map((name) => {
    const part = document.createElement("div");
    part.className = name;
    return part;
  });
  legend.setAttribute("aria-hidden", "true"); // each operator says its own
  note.append(document.createElement("div"));
  el.classList.add("fries-dag-view");
  waits.setAttribute("role", "status");
  const below = document.createElement("div"); // the note takes the place of the legend
  below.className = "fries-dag-below";
  below.append(legend, note);
  el.replaceChildren(tools, host, below, waits);
  const end = sayingWhatWaits(model, el, waits);
  const sizes = sizing(el, host, tools);
  let gauges = new Map();
  const nodes = () => host.querySelectorAll("g.node");

  // The pictures have tooltips of their own for viewers without scripts; here the note says it, beside the picture.
  const told = (name) => model.get("titles")[name] ?? name;

  const paint = () => {
    const [states, selected] = [model.get("state"), model.get("selected")];
    for (const node of nodes()) {
      const name = node.dataset.operator;
      node.dataset.state = states[name] ?? "";
      node.setAttribute("aria-pressed", String(selected.includes(name)));
      const trouble = model.get("troubles")[name]?.[1];
      node.setAttribute("aria-label", [told(name).replaceAll("\n", ", "), trouble].filter(Boolean).join(", "));
    }
    const [marked, labels] = [new Set(model.get("marked")), JSON.parse(model.get("labels"))];
    for (const edge of host.querySelectorAll("g.edge")) {
      edge.dataset.state = marked.has(edge.dataset.edge) ? "marked" : "";
      const lines = (labels[edge.dataset.edge] ?? "").split("\n");
      edge.querySelectorAll("text").forEach((text, index) => { text.textContent = lines[index] ?? ""; });
    }
  };

  const play = () => {
    const step = JSON.parse(model.get("played"));
    el.classList.toggle("plays", "rows" in step); // colours are versions then, and otherwise loads
    played(host, step);
  };

  // The titles of loops, once the rounds that rows have gone are known.
  const count = () => {
    const titles = model.get("loops");
    for (const loop of host.querySelectorAll("g.loop")) {
      const title = titles[loop.dataset.loop];
      if (title === undefined) continue;
      loop.setAttribute("aria-label", title);
      loop.querySelector("text").textContent = title;
    }
  };

  // How busy the operators are, and which of them hold up the others: their boxes say how.
  const load = () => {
    const [loads, troubles] = [JSON.parse(model.get("loads")), model.get("troubles")];
    for (const [name, show] of gauges) show(...(loads[name] ?? [0, 0]));
    for (const node of nodes()) {
      const [kind, words] = troubles[node.dataset.operator] ?? ["", ""];
      node.dataset.trouble = kind;
      const fact = node.querySelector(".fact");
      fact.dataset.declared ??= fact.textContent;
      fact.textContent = words || fact.dataset.declared;
    }
    paint();
  };

  const look = () => el.scrollIntoView({ block: "nearest", behavior: "smooth" });

  const explain = () => {
    const entries = Object.entries(model.get("legend")).map(sampled);
    const versions = new Set(Object.values(JSON.parse(model.get("played")).rows ?? {}));
    for (const [is, words] of Object.entries(ROWS)) {
      if (!versions.has(is) && !(is !== "waits" && versions.has("both"))) continue;
      const entry = document.createElement("span");
      entry.innerHTML = `<i class="row ${is}"></i>${words}`;
      entries.push(entry);
    }
    if (model.get("loads") !== "{}" && versions.size === 0) {
      const entry = document.createElement("span");
      entry.innerHTML = '<i class="busy"></i>busy<i class="blocked"></i>back-pressured';
      entries.push(entry);
    }
    legend.replaceChildren(...entries);
  };

  const draw = () => {
    const picture = new DOMParser().parseFromString(model.get("svg"), "image/svg+xml").documentElement;
    host.replaceChildren(document.importNode(picture, true));
    host.querySelectorAll("title").forEach((title) => title.remove());
    for (const node of nodes()) {
      node.setAttribute("tabindex", "0");
      node.setAttribute("role", "button");
    }
    gauges = new Map([...nodes()].map((node) => [node.dataset.operator, gauged(node)]));
    count();
    load();
    play();
    sizes.size();
  };

  const pick = (event) => {
    const node = event.target.closest?.("g.node");
    if (!node || (event.type === "keydown" && event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    event.stopPropagation(); // Jupyter has uses of its own for Enter
    const [name, selected] = [node.dataset.operator, model.get("selected")];
    const chosen = !selected.includes(name);
    model.set("selected", chosen ? [...selected, name] : selected.filter((one) => one !== name));
    model.send({ event: "select", operator: name, chosen }); // arrives before a click that follows; a state may not
    if (chosen) seeDrawer(el.closest(".fries-live")?.querySelector(".fries-drawer"));
  };
  const tell = (event) => {
    const node = event.target.closest?.("g.node");
    says(node ? told(node.dataset.operator) : "");
  };
  const says = (words) => {
    note.firstChild.textContent = words;
    below.classList.toggle("told", words !== "");
  };
  const quiet = () => says("");

  const tabbed = ({ target }) => {
    const drawer = target.closest?.(".lm-TabBar-tab")?.closest(".fries-drawer");
    if (drawer && el.closest(".fries-live")?.contains(drawer)) seeDrawer(drawer);
  };
  document.addEventListener("click", tabbed);
  host.addEventListener("click", pick);
  host.addEventListener("keydown", pick);
  host.addEventListener("pointerover", tell);
  host.addEventListener("focusin", tell);
  host.addEventListener("pointerleave", quiet);
  host.addEventListener("focusout", quiet);
  const painted = "change:state change:labels change:titles change:selected change:marked";
  const heard = [
    ["change:svg", draw], [painted, paint], ["change:legend change:loads change:played", explain], ["change:loops", count],
    ["change:loads change:troubles", load], ["change:looked_at", look], ["change:played", play],
  ];
  for (const [events, hear] of heard) model.on(events, hear);
  draw();
  explain();
  return () => {
    end();
    sizes.end();
    document.removeEventListener("click", tabbed);
    for (const [events, hear] of heard) model.off(events, hear);
  };
}
export default { render };
