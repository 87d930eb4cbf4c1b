// Runs a Python program on Pyodide: node run.mjs PYODIDE PACKAGES ROOT PROGRAM; the folders are /packages and /root.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [pyodide, packages, root, program] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${pyodide}/pyodide.mjs`));
const python = await loadPyodide();
for (const [name, folder] of [["packages", packages], ["root", root]]) {
  python.FS.mkdirTree(`/${name}`);
  python.FS.mount(python.FS.filesystems.NODEFS, { root: folder }, `/${name}`);
}
try {
  python.runPython(readFileSync(program, "utf8"));
} catch (error) {
  console.error(String(error.message));
  process.exitCode = 1;
}
