// What fries_nb/notebook/editor.js takes of CodeMirror; `make editor` bundles it as fries_nb/notebook/codemirror.js.
export {
  acceptCompletion, autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap,
} from "@codemirror/autocomplete";
export { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
export { globalCompletion, localCompletionSource, python } from "@codemirror/lang-python";
export { bracketMatching, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
export { setDiagnostics } from "@codemirror/lint";
export { Annotation, Compartment, EditorState } from "@codemirror/state";
export { drawSelection, EditorView, keymap, lineNumbers, placeholder } from "@codemirror/view";
export { tags } from "@lezer/highlight";
