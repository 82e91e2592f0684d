// Tells the kernel whether this page has room beside the notebook, and says in the cell where the live view is.
const ROOM_PX = 1000;
const LOOK_MS = 500;
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

// Where the view is in its cell and that has scrolled away: what the view says at its top, at the foot of the page.
function keptInSight(el) {
  const strip = document.createElement("div");
  strip.className = "fries-beside fries-strip";
  const [status, change] = ["span", "strong"].map((name) => document.createElement(name));
  const view = () => el.parentElement?.querySelector(".fries-live:not(.fries-beside)");
  const back = button("Go to it", "Scroll to the live view", () => view()?.scrollIntoView({ block: "start", behavior: "smooth" }));
  strip.append(change, status, back);
  const tell = () => {
    back.hidden = !el.isConnected; // Lab may take a cell out of the page that is far away
    status.textContent = view()?.querySelector(".fries-status")?.textContent ?? "";
    change.textContent = view()?.querySelector(".fries-last-change [role=status]")?.textContent ?? "";
  };
  let watched, isAway = false;
  const seen = new IntersectionObserver((entries) => {
    const isFolded = el.isConnected && !watched?.checkVisibility();
    isAway = !entries.at(-1).isIntersecting && !isFolded;
  });
  // Jupyter puts the view into the page some time after this line, and takes it out when it moves.
  const look = () => {
    if (view() !== watched) {
      seen.disconnect();
      [watched, isAway] = [view(), false];
      if (watched) seen.observe(watched);
    }
    if (isAway) tell();
    if (isAway !== strip.isConnected) isAway ? document.body.append(strip) : strip.remove();
  };
  const looking = setInterval(look, LOOK_MS);
  return () => {
    clearInterval(looking);
    seen.disconnect();
    strip.remove();
  };
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
  const end = keptInSight(el);
  return () => {
    end();
    model.off("change:is_beside", show);
  };
}
export default { render };
