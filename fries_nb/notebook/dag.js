// Shows the dataflow. The picture is put in once; afterwards only attributes and texts of what is there change.
const PATIENCE_MS = 1500;
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
  const size = () => {
    const svg = picture();
    if (!svg) return;
    svg.style.width = zoom ? `${zoom * svg.viewBox.baseVal.width}px` : "";
    svg.style.maxWidth = zoom ? "none" : "";
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
  if (document.fullscreenEnabled) buttons["Full screen"] = ["Show the live view on the whole screen", whole];
  tools.replaceChildren(...Object.entries(buttons).map(([words, [title, clicked]]) => {
    const button = document.createElement("button");
    [button.type, button.textContent, button.title] = ["button", words, title];
    button.setAttribute("aria-label", title);
    button.addEventListener("click", clicked);
    return button;
  }));
  const turned = () => {
    const last = tools.lastChild;
    if (document.fullscreenEnabled) last.textContent = document.fullscreenElement === view() ? "Leave full screen" : "Full screen";
    fit();
  };
  document.addEventListener("fullscreenchange", turned);
  return { size, end: () => document.removeEventListener("fullscreenchange", turned) };
}

// Strips at the lower edge of each box: from the left how busy its operator is, from the right how long it is held back.
function stripped(node) {
  const box = node.querySelector(".box");
  const [x, y, width, height] = ["x", "y", "width", "height"].map((name) => Number(box.getAttribute(name)));
  const room = width - 12;
  for (const [name, length] of [["busy", 0], ["blocked", 0], ["track", room]]) {
    const strip = document.createElementNS(node.namespaceURI, "rect");
    strip.setAttribute("class", `strip ${name}`);
    for (const [key, value] of Object.entries({ x: x + 6, y: y + height - 5, width: length, height: 3.5, rx: 1.5 }))
      strip.setAttribute(key, value);
    box.after(strip);
  }
  return (busy, blocked) => {
    node.querySelector(".track").style.visibility = busy || blocked ? "" : "hidden";
    const [most, rest] = [Math.min(1, busy) * room, Math.min(1, blocked) * room];
    node.querySelector(".busy").setAttribute("width", most);
    node.querySelector(".blocked").setAttribute("width", rest);
    node.querySelector(".blocked").setAttribute("x", x + 6 + room - rest);
  };
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
  el.replaceChildren(tools, host, legend, note, waits);
  const end = sayingWhatWaits(model, el, waits);
  const sizes = sizing(el, host, tools);
  let strips = new Map();
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

  // Markers that pass edges now: a dot for each, which goes along its edge once.
  const travel = () => {
    host.querySelectorAll(".travelling").forEach((dot) => dot.remove());
    for (const number of model.get("travelling")) {
      const line = host.querySelector(`g.edge[data-edge="${number}"] .line`);
      const dot = document.createElementNS(line.namespaceURI, "circle");
      const way = document.createElementNS(line.namespaceURI, "animateMotion");
      dot.setAttribute("class", "travelling");
      dot.setAttribute("r", 6);
      const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
      for (const [key, value] of Object.entries({ dur: still ? "1ms" : "1s", begin: "indefinite", fill: "freeze", path: line.getAttribute("d") }))
        way.setAttribute(key, value);
      dot.append(way);
      line.parentNode.append(dot);
      way.beginElement();
    }
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
    for (const [name, show] of strips) show(...(loads[name] ?? [0, 0]));
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
    if (model.get("loads") !== "{}") {
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
    strips = new Map([...nodes()].map((node) => [node.dataset.operator, stripped(node)]));
    count();
    load();
    travel();
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
  };
  const tell = (event) => {
    const node = event.target.closest?.("g.node");
    note.firstChild.textContent = node ? told(node.dataset.operator) : "";
  };
  const quiet = () => { note.firstChild.textContent = ""; };

  host.addEventListener("click", pick);
  host.addEventListener("keydown", pick);
  host.addEventListener("pointerover", tell);
  host.addEventListener("focusin", tell);
  host.addEventListener("pointerleave", quiet);
  host.addEventListener("focusout", quiet);
  const painted = "change:state change:labels change:titles change:selected change:marked";
  const heard = [
    ["change:svg", draw], [painted, paint], ["change:legend change:loads", explain], ["change:loops", count],
    ["change:loads change:troubles", load], ["change:looked_at", look], ["change:travelling", travel],
  ];
  for (const [events, hear] of heard) model.on(events, hear);
  draw();
  explain();
  return () => {
    end();
    sizes.end();
    for (const [events, hear] of heard) model.off(events, hear);
  };
}
export default { render };
