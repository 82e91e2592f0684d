// A line for text, or a list to choose from. What it shows is sent with each key or choice, in order with the clicks
// that follow: the states of a model that ipywidgets sends are held back while the kernel is at work on the one before,
// and a click overtakes them.
function render({ model, el }) {
  const options = model.get("options");
  const placeholder = model.get("placeholder");
  const [label, words] = ["label", "span"].map((name) => document.createElement(name));
  const entry = document.createElement(options.length ? "select" : "input");
  label.append(words, entry);
  words.textContent = words.title = model.get("description");
  label.title = model.get("tooltip");
  entry.ariaLabel = model.get("description"); // the label's own text includes that of the list
  if (options.length) {
    for (const one of placeholder ? ["", ...options] : options) entry.add(new Option(one || placeholder, one));
  } else {
    Object.assign(entry, { type: model.get("kind"), step: "any", placeholder, spellcheck: false, autocomplete: "off" });
  }
  el.classList.add("fries-field");
  el.dataset.lmSuppressShortcuts = "true"; // keys are text here, and no commands of Jupyter
  el.replaceChildren(label);

  const show = () => {
    // What is being entered is newer than what comes back of it.
    if (document.activeElement !== entry && entry.value !== model.get("value")) entry.value = model.get("value");
  };
  const press = (event) => {
    event.stopPropagation();
    if (event.key === "Enter" && !options.length && !event.isComposing) model.send({ event: "submit" });
  };
  entry.addEventListener("input", () => model.send({ event: "entered", text: entry.value }));
  entry.addEventListener("keydown", press);
  model.on("change:value", show);
  entry.value = model.get("value");
  return () => model.off("change:value", show);
}
export default { render };
