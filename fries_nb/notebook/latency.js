// Draws the window that Python keeps. BokehJS comes from the installed wheel through the kernel, never from a network.
async function bokehOf(model) {
  const wanted = model.get("version");
  const found = () => (globalThis.Bokeh?.version === wanted ? globalThis.Bokeh : globalThis.Bokeh?.[wanted]);
  if (found()) return found();
  globalThis.__friesBokeh ??= (async () => {
    const loader = await model.widget_manager.get_model(model.get("loader"));
    const script = document.createElement("script");
    script.textContent = loader.get("code");
    document.head.append(script);
  })();
  try {
    await globalThis.__friesBokeh;
  } catch (error) {
    globalThis.__friesBokeh = undefined; // the next view tries anew
    throw error;
  }
  return found() ?? globalThis.Bokeh;
}

function isDark(el) {
  const told = document.body.dataset.jpThemeLight;
  return told ? told === "false" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function colour(models, dark) {
  const [ink, soft, line] = dark ? ["#e6e9ed", "#a3acb8", "#3a424c"] : ["#1b1f24", "#57606a", "#d0d7de"];
  const colours = {
    axis_label_text_color: ink, major_label_text_color: soft, axis_line_color: line, major_tick_line_color: line,
    label_text_color: ink, grid_line_color: line, text_color: ink,
  };
  for (const model of models)
    for (const [name, value] of Object.entries(colours))
      if (name in model.properties && model[name] !== null)
        model[name] = model.properties[name].is_value === undefined && name === "text_color" ? { value } : value;
}

async function render({ model, el }) {
  const box = document.createElement("div");
  el.replaceChildren(box);
  const Bokeh = await bokehOf(model);
  const views = await Bokeh.embed.embed_item({ ...JSON.parse(model.get("item")), target_id: null }, box);
  const view = Array.isArray(views) ? views[0] : [...views][0] ?? views;
  const models = [...view.model.document._all_models.values()];
  const sources = models.filter((one) => one.type === "ColumnDataSource" && one.name);
  let dark;
  const paint = () => {
    if (dark !== isDark(el)) colour(models, (dark = isDark(el)));
    const shown = model.get("window");
    for (const source of sources) if (shown[source.name]) source.data = shown[source.name];
  };
  model.on("change:window", paint);
  paint();
  return () => {
    model.off("change:window", paint);
    view.clear?.();
  };
}
export default { render };
