// The button Add of the canvas, and its menu. A click on an entry writes the line behind the text of the cell.
function render({ model, el }) {
  const [bar, menu, note] = ["div", "div", "p"].map((name) => document.createElement(name));
  const opener = document.createElement("button");
  [opener.type, opener.textContent] = ["button", "Add ..."];
  opener.setAttribute("aria-haspopup", "menu");
  bar.append(opener, menu);
  menu.setAttribute("role", "menu");
  note.setAttribute("role", "status");
  el.classList.add("fries-canvas-menu");
  el.dataset.lmSuppressShortcuts = "true";
  el.replaceChildren(bar, note);

  let awaits = false; // the entries of an operator that was clicked with the right button
  let seen = "";
  const entries = () => [...menu.querySelectorAll("button")];
  const open = (is) => {
    menu.hidden = !is;
    opener.setAttribute("aria-expanded", String(is));
    if (is) entries()[0]?.focus();
  };
  const written = async (line) => {
    open(false);
    opener.focus();
    const former = model.get("cell");
    const put = putIntoCell(await codeMirrorOf(model), { former, new: `${former}\n${line}` });
    model.send({ event: "add", line, put });
  };
  const show = () => {
    const now = JSON.stringify(["shown", "lines", "note", "operator"].map((name) => model.get(name)));
    if (now === seen) return;
    seen = now;
    el.hidden = !model.get("shown");
    const [lines, operator] = [model.get("lines"), model.get("operator")];
    opener.disabled = Object.keys(lines).length === 0;
    opener.title = operator ? `Add an operator or a sink behind ${operator}` : "Select an operator first";
    menu.setAttribute("aria-label", opener.title);
    note.textContent = model.get("note");
    menu.replaceChildren(...Object.entries(lines).map(([words, line]) => {
      const entry = document.createElement("button");
      [entry.type, entry.textContent, entry.title] = ["button", `${words} behind ${operator}`, line];
      entry.setAttribute("role", "menuitem");
      entry.addEventListener("click", () => written(line));
      return entry;
    }));
    open(awaits && !opener.disabled);
    awaits = false;
  };
  const about = (event) => {
    const node = event.target.closest?.(".fries-dag g.node");
    const view = el.closest(".fries-live");
    if (!node || !view?.contains(node) || el.hidden || event.shiftKey || (node.dataset.state ?? "").includes("added")) return;
    event.preventDefault();
    event.stopPropagation(); // JupyterLab has a menu of its own
    if (node.dataset.operator === model.get("operator")) {
      open(!opener.disabled);
      return;
    }
    awaits = true;
    model.send({ event: "about", operator: node.dataset.operator });
  };
  const pressed = (event) => {
    const [all, step] = [entries(), { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key]];
    event.stopPropagation();
    if (event.key === "Escape" && !menu.hidden) {
      open(false);
      opener.focus();
    } else if (step && !menu.hidden) {
      event.preventDefault();
      all[(all.indexOf(document.activeElement) + step + all.length) % all.length]?.focus();
    }
  };
  const left = (event) => { if (!el.contains(event.relatedTarget)) open(false); };
  opener.addEventListener("click", () => open(menu.hidden));
  el.addEventListener("keydown", pressed);
  el.addEventListener("focusout", left);
  document.addEventListener("contextmenu", about, true);
  model.on("change", show); // once for all that has changed
  show();
  return () => {
    document.removeEventListener("contextmenu", about, true);
    model.off("change", show);
  };
}
export default { render };
