// CodeMirror, which comes from this package through the kernel, never from a network; and texts of cells in the page.
// It stands in front of the scripts that use it (``editor.CellWriter``).
async function codeMirrorOf(model) {
  const loading = (globalThis.__friesCodeMirror ??= {}); // of each version, since kernels may have several
  const wanted = model.get("version");
  loading[wanted] ??= (async () => {
    const loader = await model.widget_manager.get_model(model.get("loader"));
    const address = URL.createObjectURL(new Blob([loader.get("code")], { type: "text/javascript" }));
    return import(address).finally(() => URL.revokeObjectURL(address));
  })();
  try {
    return await loading[wanted];
  } catch (error) {
    delete loading[wanted]; // the next view tries anew
    throw error;
  }
}

// Puts a text of a cell in place of the former one, if just one cell in the page has that.
function putIntoCell({ EditorView }, { former, new: text }) {
  const found = [...document.querySelectorAll(".jp-CodeCell .jp-InputArea .cm-editor")].flatMap((one) => {
    const view = EditorView.findFromDOM(one);
    const at = view?.state.doc.toString().indexOf(former) ?? -1;
    return at < 0 ? [] : [{ view, at }];
  });
  if (found.length !== 1) return false;
  const [{ view, at }] = found;
  view.dispatch({ changes: { from: at, to: at + former.length, insert: text } });
  view.dom.scrollIntoView({ block: "nearest" });
  return true;
}

