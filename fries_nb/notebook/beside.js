// Tells the kernel whether this page has room beside the notebook, and says in the cell where the live view is.
const ROOM_PX = 1000;
const PANELS = "@jupyter-widgets/jupyterlab-sidecar";

// Only JupyterLab's page can be divided, unless it shows one document at a time; and only with the extension that does
// it, which is not installed where the server has an environment of its own.
function hasRoom() {
  const shell = document.querySelector(".jp-LabShell");
  const config = document.getElementById("jupyter-config-data");
  if (!shell || !config || shell.dataset.shellMode === "single-document" || window.innerWidth < ROOM_PX) return false;
  const extensions = JSON.parse(config.textContent).federated_extensions ?? [];
  return extensions.some((extension) => extension.name === PANELS);
}

function button(words, tooltip, clicked) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = words;
  made.title = tooltip;
  made.addEventListener("click", clicked);
  return made;
}

function render({ model, el }) {
  el.classList.add("fries-beside");
  const say = (event) => () => model.send({ event });
  const here = button("Show it here", "In this cell, in place of the panel", say("here"));
  const again = button("Open it again", "Beside the notebook, if the panel was closed", say("beside"));
  const away = button("Beside the notebook", "In a panel that stays while you scroll", say("beside"));
  const words = document.createElement("span");
  const show = () => {
    const isBeside = model.get("is_beside");
    words.textContent = isBeside ? `${model.get("title")} is shown beside the notebook.` : "";
    el.replaceChildren(words, ...(isBeside ? [again, here] : hasRoom() ? [away] : []));
  };
  model.on("change:is_beside", show);
  show();
  model.send({ event: "shown", room: hasRoom() });
  return () => model.off("change:is_beside", show);
}
export default { render };
