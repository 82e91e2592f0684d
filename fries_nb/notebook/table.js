// Shows a table. Rows are known by their keys: of what is there, only the texts that differ change.
function render({ model, el }) {
  const [table, head, body] = ["table", "thead", "tbody"].map((name) => document.createElement(name));
  const caption = document.createElement("caption");
  const empty = document.createElement("p");
  el.classList.add("fries-table");
  el.setAttribute("role", "region");
  el.tabIndex = 0; // it scrolls, so the keyboard must reach it
  table.append(caption, head, body);
  el.replaceChildren(table, empty);

  const isNumber = (place) => model.get("columns")[place]?.startsWith("#");
  const heading = () => {
    caption.textContent = model.get("caption");
    el.setAttribute("aria-label", model.get("caption"));
    const cells = model.get("columns").map((name, place) => {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.className = isNumber(place) ? "number" : "";
      cell.textContent = name.replace(/^#/, "");
      return cell;
    });
    const row = document.createElement("tr");
    row.append(...cells);
    head.replaceChildren(row);
  };

  const made = (key, count) => {
    const row = document.createElement("tr");
    row.dataset.key = key;
    if (model.get("selectable")) row.tabIndex = 0;
    for (let place = 0; place < count; place += 1) {
      const cell = document.createElement(place ? "td" : "th");
      if (!place) cell.scope = "row";
      cell.className = isNumber(place) ? "number" : "";
      row.append(cell);
    }
    return row;
  };

  const choose = () => {
    for (const row of body.rows) {
      if (model.get("selectable")) row.setAttribute("aria-selected", String(row.dataset.key === model.get("selected")));
    }
  };

  const fill = () => {
    const rows = JSON.parse(model.get("rows"));
    const there = new Map([...body.rows].map((row) => [row.dataset.key, row]));
    rows.forEach(([key, ...cells], place) => {
      const row = there.get(key) ?? made(key, cells.length);
      there.delete(key);
      cells.forEach((text, index) => {
        const cell = row.cells[index];
        if (cell.textContent !== text) cell.textContent = cell.title = text;
      });
      if (body.rows[place] !== row) body.insertBefore(row, body.rows[place] ?? null);
    });
    there.forEach((row) => row.remove());
    table.hidden = !rows.length;
    empty.textContent = rows.length ? "" : model.get("empty");
    choose();
  };

  const pick = (event) => {
    const row = event.target.closest?.("tbody tr");
    if (!row || !model.get("selectable")) return;
    if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation(); // Jupyter has uses of its own for Enter
    model.set("selected", row.dataset.key === model.get("selected") ? "" : row.dataset.key);
    model.send({ event: "select", key: model.get("selected") }); // arrives before a click that follows; a state may not
  };

  // Tells the kernel that the table is in sight, and waits for its answer, so that a busy kernel has one message to read.
  const beat_ms = model.get("beat_ms");
  let [inSight, sentAt] = [false, -Infinity];
  const tell = () => {
    if (!inSight || document.hidden || performance.now() - sentAt < 5000) return;
    sentAt = performance.now();
    try {
      model.send({ event: "seen" });
    } catch {
      clearInterval(beat); // the kernel has ended
    }
  };
  const answered = (message) => {
    if (message.event === "answered") sentAt = -Infinity;
  };
  const beat = beat_ms ? setInterval(tell, beat_ms) : 0;
  const watcher = new IntersectionObserver((seen) => {
    inSight = seen.at(-1).isIntersecting;
    sentAt = -Infinity;
    tell();
  });
  if (beat_ms) watcher.observe(el);

  const rebuild = () => {
    body.replaceChildren();
    heading();
    fill();
  };

  body.addEventListener("click", pick);
  body.addEventListener("keydown", pick);
  model.on("msg:custom", answered);
  model.on("change:columns", rebuild);
  model.on("change:empty", fill);
  model.on("change:rows", fill);
  model.on("change:selected", choose);
  heading();
  fill();
  return () => {
    clearInterval(beat);
    watcher.disconnect();
    model.off("msg:custom", answered);
    model.off("change:columns", rebuild);
    model.off("change:empty", fill);
    model.off("change:rows", fill);
    model.off("change:selected", choose);
  };
}
export default { render };
