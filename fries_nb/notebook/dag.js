// Shows the dataflow. The picture is put in once; afterwards only attributes and texts of what is there change.
function render({ model, el }) {
  const host = document.createElement("div");
  host.className = "fries-dag";
  const note = document.createElement("div");
  note.className = "fries-dag-note";
  el.replaceChildren(host, note);
  const nodes = () => host.querySelectorAll("g.node");

  const paint = () => {
    const [states, titles, selected] = [model.get("state"), model.get("titles"), model.get("selected")];
    for (const node of nodes()) {
      const name = node.dataset.operator;
      node.dataset.state = states[name] ?? "";
      node.setAttribute("aria-pressed", String(name === selected));
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
    model.set("selected", node.dataset.operator);
    model.save_changes();
  };
  const tell = (event) => {
    const node = event.target.closest?.("g.node");
    note.textContent = node ? node.querySelector("title").textContent : "";
  };
  const quiet = () => { note.textContent = ""; };

  host.addEventListener("click", pick);
  host.addEventListener("keydown", pick);
  host.addEventListener("pointerover", tell);
  host.addEventListener("focusin", tell);
  host.addEventListener("pointerleave", quiet);
  host.addEventListener("focusout", quiet);
  const painted = "change:state change:labels change:titles change:selected change:marked";
  model.on("change:svg", load);
  model.on(painted, paint);
  load();
  return () => {
    model.off("change:svg", load);
    model.off(painted, paint);
  };
}
export default { render };
