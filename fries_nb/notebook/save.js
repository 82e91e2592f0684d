// Buttons that save a file each. The kernel makes it; the browser stores it where it stores downloads.
async function rasterised(svg) {
  const picture = new Image();
  const address = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    picture.src = address;
    await picture.decode();
    const canvas = document.createElement("canvas");
    const sharp = 2; // as on a screen of a high density
    [canvas.width, canvas.height] = [picture.width * sharp, picture.height * sharp];
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
  } finally {
    URL.revokeObjectURL(address);
  }
}

function stored(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // some browsers read it later
}

function render({ model, el }) {
  el.classList.add("fries-save");
  const said = document.createElement("p");
  said.setAttribute("role", "status");
  const lines = model.get("choices").map(([what, kinds]) => {
    const [line, name] = [document.createElement("div"), document.createElement("span")];
    name.textContent = what;
    const buttons = kinds.map((kind) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = kind.toUpperCase();
      button.setAttribute("aria-label", `Save ${what} as ${kind.toUpperCase()}`);
      button.addEventListener("click", () => {
        said.textContent = `${what}: under way ...`;
        model.send({ event: "save", what, kind });
      });
      return button;
    });
    line.append(name, ...buttons);
    return line;
  });
  el.replaceChildren(...lines, said);
  const receive = async (content, buffers) => {
    if (content.event === "failed") said.textContent = `${content.what} cannot be saved: ${content.error}`;
    if (content.event !== "file") return;
    try {
      const plain = new Blob([buffers[0]], { type: content.type });
      const blob = content.type === "image/png" ? await rasterised(await plain.text()) : plain;
      stored(blob, content.name);
      said.textContent = `saved ${content.name}`;
    } catch (error) {
      said.textContent = `${content.name} cannot be saved: ${error.message}`;
    }
  };
  model.on("msg:custom", receive);
  return () => model.off("msg:custom", receive);
}
export default { render };
