// Shows the drawings that Python keeps for several widths: of those the widest that fits.
function render({ model, el }) {
  el.classList.add("fries-drawings", model.get("kind"));
  let shown;
  const draw = () => {
    const drawings = model.get("drawings");
    const widths = Object.keys(drawings).map(Number).sort((one, other) => one - other);
    const fitting = widths.filter((width) => width <= el.clientWidth).at(-1) ?? widths[0];
    const drawn = fitting === undefined ? "" : drawings[fitting].join("");
    if (drawn === shown) return;
    el.innerHTML = shown = drawn;
    if (!drawn) el.textContent = model.get("empty");
  };
  const sized = new ResizeObserver(draw);
  sized.observe(el);
  model.on("change:drawings", draw);
  draw();
  return () => {
    sized.disconnect();
    model.off("change:drawings", draw);
  };
}
export default { render };
