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
    if (asked !== undefined || !view.contains(event.target) || !event.target.closest("button, g.node")) return;
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

function render({ model, el }) {
  const [host, legend, note, waits] = ["fries-dag", "fries-dag-legend", "fries-dag-note", "fries-dag-waits"].map((name) => {
    const part = document.createElement("div");
    part.className = name;
    return part;
  });
  legend.setAttribute("aria-hidden", "true"); // each operator says its own
  note.append(document.createElement("div"));
  el.classList.add("fries-dag-view");
  waits.setAttribute("role", "status");
  el.replaceChildren(host, legend, note, waits);
  const end = sayingWhatWaits(model, el, waits);
  const nodes = () => host.querySelectorAll("g.node");

  const paint = () => {
    const [states, titles, selected] = [model.get("state"), model.get("titles"), model.get("selected")];
    for (const node of nodes()) {
      const name = node.dataset.operator;
      node.dataset.state = states[name] ?? "";
      node.setAttribute("aria-pressed", String(selected.includes(name)));
      node.setAttribute("aria-label", (titles[name] ?? name).replaceAll("\n", ", "));
      const title = node.querySelector("title");
      if (title.textContent !== titles[name]) title.textContent = titles[name] ?? name;
    }
    const [marked, labels] = [new Set(model.get("marked")), model.get("labels")];
    for (const edge of host.querySelectorAll("g.edge")) {
      edge.dataset.state = marked.has(edge.dataset.edge) ? "marked" : "";
      const lines = (labels[edge.dataset.edge] ?? "").split("\n");
      edge.querySelectorAll("text").forEach((text, index) => { text.textContent = lines[index] ?? ""; });
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

  const explain = () => { legend.replaceChildren(...Object.entries(model.get("legend")).map(sampled)); };

  const load = () => {
    const picture = new DOMParser().parseFromString(model.get("svg"), "image/svg+xml").documentElement;
    host.replaceChildren(document.importNode(picture, true));
    for (const node of nodes()) {
      node.setAttribute("tabindex", "0");
      node.setAttribute("role", "button");
    }
    paint();
    count();
  };

  const pick = (event) => {
    const node = event.target.closest?.("g.node");
    if (!node || (event.type === "keydown" && event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    event.stopPropagation(); // Jupyter has uses of its own for Enter
    const [name, selected] = [node.dataset.operator, model.get("selected")];
    const others = selected.filter((one) => one !== name);
    model.set("selected", others.length < selected.length ? others : [...selected, name]);
    model.save_changes();
  };
  const tell = (event) => {
    const node = event.target.closest?.("g.node");
    note.firstChild.textContent = node ? node.querySelector("title").textContent : "";
  };
  const quiet = () => { note.firstChild.textContent = ""; };

  host.addEventListener("click", pick);
  host.addEventListener("keydown", pick);
  host.addEventListener("pointerover", tell);
  host.addEventListener("focusin", tell);
  host.addEventListener("pointerleave", quiet);
  host.addEventListener("focusout", quiet);
  const painted = "change:state change:labels change:titles change:selected change:marked";
  model.on("change:svg", load);
  model.on(painted, paint);
  model.on("change:legend", explain);
  model.on("change:loops", count);
  load();
  explain();
  return () => {
    end();
    model.off("change:svg", load);
    model.off(painted, paint);
    model.off("change:legend", explain);
    model.off("change:loops", count);
  };
}
export default { render };
