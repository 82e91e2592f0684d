// The editor of a function.
//
// What is typed is sent with each key, in order with the clicks that follow: the states of a model that ipywidgets
// sends are held back while the kernel is at work on the one before, and a click overtakes them. The kernel may put
// another text in its place, `given`, with a number that grows; what was typed into an earlier one has its number.

// JupyterLab's own colours of code, which follow its theme; where there are none, those of the style sheet.
function highlighting({ HighlightStyle, syntaxHighlighting, tags }) {
  const is = (tag, name, more = {}) => ({ tag, color: `var(--fries-code-${name})`, ...more });
  return syntaxHighlighting(HighlightStyle.define([
    is([tags.keyword, tags.controlKeyword, tags.definitionKeyword, tags.operatorKeyword, tags.moduleKeyword, tags.self,
      tags.bool, tags.null], "keyword", { fontWeight: "bold" }),
    is(tags.number, "number"),
    is([tags.string, tags.special(tags.string)], "string"),
    is(tags.comment, "comment", { fontStyle: "italic" }),
    is([tags.definition(tags.className), tags.function(tags.definition(tags.variableName))], "def"),
    is(tags.operator, "operator"),
    is(tags.meta, "operator"),
  ]));
}

// The names of the user's namespace; in brackets behind a quote the columns of rows.
function known(model) {
  return (context) => {
    const column = context.matchBefore(/\[\s*["'][^"'\]\n]*/);
    if (column) {
      const from = column.from + column.text.search(/["']/) + 1;
      const options = model.get("columns").map((label) => ({ label, type: "property", boost: 2 }));
      return { from, options, validFor: /^[^"'\]\n]*$/ };
    }
    const word = context.matchBefore(/[\p{L}_][\p{L}\p{N}_]*/u);
    if (!word || context.matchBefore(/\.\s*[\p{L}\p{N}_]*/u)) return null;
    const options = model.get("names").map((label) => ({ label, type: "variable", boost: 1 }));
    return { from: word.from, options, validFor: /^[\p{L}\p{N}_]*$/u };
  };
}

// What the kernel says is wrong: from a column of a line, or from its first letter, to the end of the line.
function diagnostics(doc, marks) {
  return marks.filter(({ line }) => line <= doc.lines).map(({ line, column, words }) => {
    const { from, to, text } = doc.line(line);
    const at = from + Math.min(Math.max(column, text.length - text.trimStart().length), Math.max(0, text.length - 1));
    return { from: at, to, severity: "error", message: words };
  });
}

async function render({ model, el }) {
  const [head, label, place, note] = ["div", "span", "div", "p"].map((name) => document.createElement(name));
  label.textContent = label.title = model.get("description");
  head.append(label);
  note.setAttribute("role", "status");
  el.classList.add("fries-editor");
  el.dataset.lmSuppressShortcuts = "true"; // keys are text here, and no commands of Jupyter
  el.replaceChildren(head, place, note);
  const code = await codeMirrorOf(model);
  const { autocompletion, Compartment, EditorState, EditorView, keymap } = code;

  const fromKernel = code.Annotation.define();
  const lock = new Compartment();
  const locked = () => [
    EditorState.readOnly.of(model.get("read_only")),
    EditorView.contentAttributes.of({
      "aria-label": model.get("description"), "aria-readonly": String(model.get("read_only")), spellcheck: "false",
    }),
  ];
  let number = model.get("given").number;
  let awaited = null; // what was sent, until it comes back: texts that come before it are older
  const hear = EditorView.updateListener.of((update) => {
    if (update.focusChanged && update.view.hasFocus) model.send({ event: "focused" });
    if (!update.docChanged || update.transactions.some((one) => one.annotation(fromKernel))) return;
    awaited = update.state.doc.toString();
    model.send({ event: "entered", text: awaited, number });
  });
  const submit = () => {
    model.send({ event: "submit" });
    return true;
  };
  const view = new EditorView({
    parent: place,
    doc: model.get("value"),
    extensions: [
      keymap.of([{ key: "Mod-Enter", run: submit }, { key: "Tab", run: code.acceptCompletion }]),
      code.history(), code.drawSelection(), code.lineNumbers(), code.indentOnInput(), code.bracketMatching(),
      code.closeBrackets(), EditorView.lineWrapping,
      autocompletion({
        override: [known(model), code.localCompletionSource, code.globalCompletion], defaultKeymap: false,
      }),
      keymap.of([
        ...code.completionKeymap.filter(({ key }) => key !== "Enter"), // a line ends, whatever is offered
        ...code.closeBracketsKeymap, ...code.historyKeymap, ...code.defaultKeymap,
        code.indentWithTab, // Escape and then Tab leaves the editor
      ]),
      code.python(), code.indentUnit.of("    "), EditorState.tabSize.of(4), highlighting(code),
      code.placeholder(model.get("placeholder")), lock.of(locked()), hear,
      EditorState.changeFilter.of((change) => change.annotation(fromKernel) || !el.closest(".fries-silent")),
    ],
  });

  const replace = () => {
    const given = model.get("given");
    if (given.number === number) return;
    [number, awaited] = [given.number, null];
    const changes = { from: 0, to: view.state.doc.length, insert: given.text };
    view.dispatch({ changes, annotations: fromKernel.of(true) });
  };
  const follow = () => {
    // Another view of the same editor may be where it is typed.
    const text = model.get("value");
    if (text === awaited) awaited = null;
    if (awaited !== null || view.hasFocus || text === view.state.doc.toString()) return;
    const changes = { from: 0, to: view.state.doc.length, insert: text };
    view.dispatch({ changes, annotations: fromKernel.of(true) });
  };
  const offer = () => {
    const buttons = model.get("actions").map((name) => {
      const button = document.createElement("button");
      button.textContent = name;
      button.addEventListener("click", () => {
        const put = name.startsWith("Write") && putIntoCell(code, model.get("cell"));
        model.send({ event: "action", name, put });
      });
      return button;
    });
    head.replaceChildren(label, ...buttons);
  };
  const tell = () => {
    note.textContent = model.get("note");
  };
  const mark = () => view.dispatch(code.setDiagnostics(view.state, diagnostics(view.state.doc, model.get("marks"))));
  const enable = () => {
    el.classList.toggle("read-only", model.get("read_only"));
    view.dispatch({ effects: lock.reconfigure(locked()) });
  };
  const heard = {
    "change:given": replace, "change:marks": mark, "change:read_only": enable, "change:value": follow,
    "change:actions": offer, "change:note": tell,
  };
  for (const [event, hears] of Object.entries(heard)) model.on(event, hears);
  place.addEventListener("keydown", (event) => event.stopPropagation()); // Jupyter has uses of its own for Enter
  for (const shows of [replace, enable, mark, offer, tell]) shows();
  return () => {
    for (const [event, hears] of Object.entries(heard)) model.off(event, hears);
    view.destroy();
  };
}

export default { render };
