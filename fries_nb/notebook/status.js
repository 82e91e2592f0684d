// Shows the status line. When the kernel has not been heard for too long, it says that instead of the last state.
const LOOK_MS = 1000;
const clock = (at) => new Date(at).toLocaleTimeString([], { hour12: false });

function render({ model, el }) {
  const [line, silence] = [document.createElement("div"), document.createElement("div")];
  el.classList.add("fries-status");
  silence.className = "fries-silence";
  silence.setAttribute("role", "alert");
  el.replaceChildren(line, silence);
  let heard = Date.now();
  const show = () => { line.innerHTML = model.get("value"); };
  const look = () => {
    const silent = !model.get("over") && Date.now() - heard > model.get("patience_ms");
    const words = silent
      ? `No news from the kernel since ${clock(heard)}: it has ended, or a function holds it up. What is shown is of then.`
      : "";
    if (silence.textContent !== words) silence.textContent = words;
    line.hidden = silent;
    (el.closest(".fries-live") ?? el).classList.toggle("fries-silent", silent);
  };
  const hear = () => {
    heard = Date.now();
    look();
  };
  const events = "change:news change:value change:over change:patience_ms";
  model.on("change:value", show);
  model.on(events, hear);
  const timer = setInterval(look, LOOK_MS);
  show();
  return () => {
    clearInterval(timer);
    model.off("change:value", show);
    model.off(events, hear);
  };
}
export default { render };
