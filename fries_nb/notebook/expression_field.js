// A line for an expression. Its text is sent with each key, in order with the clicks that follow: the states of a
// model that ipywidgets sends are held back while the kernel is at work on the one before, and a click overtakes them.
function render({ model, el }) {
  const [label, words, input] = ["label", "span", "input"].map((name) => document.createElement(name));
  label.append(words, input);
  words.textContent = words.title = model.get("description");
  input.type = "text";
  input.placeholder = model.get("placeholder");
  input.spellcheck = false;
  input.autocomplete = "off";
  el.classList.add("fries-field");
  el.dataset.lmSuppressShortcuts = "true"; // keys are text here, and no commands of Jupyter
  el.replaceChildren(label);

  const show = () => {
    // What is being typed is newer than what comes back of it.
    if (document.activeElement !== input && input.value !== model.get("value")) input.value = model.get("value");
  };
  const press = (event) => {
    event.stopPropagation();
    if (event.key === "Enter" && !event.isComposing) model.send({ event: "submit" });
  };
  input.addEventListener("input", () => model.send({ event: "typed", text: input.value }));
  input.addEventListener("keydown", press);
  model.on("change:value", show);
  input.value = model.get("value");
  return () => model.off("change:value", show);
}
export default { render };
