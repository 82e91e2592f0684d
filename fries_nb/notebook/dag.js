// Shows the dataflow. The picture is put in once; afterwards only attributes and texts of what is there change.
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

function render({ model, el }) {
  const [host, legend, note] = ["fries-dag", "fries-dag-legend", "fries-dag-note"].map((name) => {
    const part = document.createElement("div");
    part.className = name;
    return part;
  });
  legend.setAttribute("aria-hidden", "true"); // each operator says its own
  note.append(document.createElement("div"));
  el.classList.add("fries-dag-view");
  el.replaceChildren(host, legend, note);
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

  const explain = () => { legend.replaceChildren(...Object.entries(model.get("legend")).map(sampled)); };

  const load = () => {
    const picture = new DOMParser().parseFromString(model.get("svg"), "image/svg+xml").documentElement;
    host.replaceChildren(document.importNode(picture, true));
    for (const node of nodes()) {
      node.setAttribute("tabindex", "0");
      node.setAttribute("role", "button");
    }
    paint();
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
  load();
  explain();
  return () => {
    model.off("change:svg", load);
    model.off(painted, paint);
    model.off("change:legend", explain);
  };
}
export default { render };
