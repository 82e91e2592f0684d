// Bundles CodeMirror into the file that is its one argument; the first line there names the versions that are in it.
import { readFileSync } from "node:fs";
import { build } from "esbuild";

const { packages } = JSON.parse(readFileSync("package-lock.json", "utf8"));
const used = Object.entries(packages).filter(([path, { dev, optional }]) => path && !dev && !optional);
const versions = used.map(([path, { version }]) => `${path.replace("node_modules/", "")} ${version}`).sort();
const licence = readFileSync("node_modules/@codemirror/state/LICENSE", "utf8"); // the same author's and licence for all
await build({
  entryPoints: ["codemirror.mjs"],
  outfile: process.argv[2],
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2020",
  charset: "utf8",
  legalComments: "none",
  banner: { js: `/* ${versions.join(", ")} */\n/* ${licence.trim()} */` },
});
