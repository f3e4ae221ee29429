/**
 * Makes the bundle: `node build.mjs DIRECTORY`, and `node build.mjs --tests DIRECTORY` the tests for node's own runner.
 *
 * A view is a module of its own, which the page fetches when it is shown. The licenses of what is bundled stand at the top
 * of the first script.
 */

import { copyFile, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const HERE = fileURLToPath(new URL(".", import.meta.url));
/** Modules that the page has whatever it shows. */
const NEEDED = ["src/start.ts", "src/main.ts", "src/frame/Page.tsx"];
const BUNDLED = ["preact", "@preact/signals", "uplot"];

/** Assignments by which uPlot offers what the page does not use, and which keep 5 KB in the bundle. */
const UNUSED_OF_UPLOT = [
  "uPlot.join = join;",
  "(paths.stepped = stepped);",
  "(paths.bars    = bars);",
  "(paths.spline  = monotoneCubic);",
];

const smallerPlot = {
  name: "smaller-plot",
  setup(plugin) {
    plugin.onLoad({ filter: /uPlot\.esm\.js$/ }, async ({ path }) => {
      let contents = await readFile(path, "utf8");
      for (const unused of UNUSED_OF_UPLOT) {
        if (!contents.includes(unused)) throw new Error(`uPlot has no "${unused}" any more`);
        contents = contents.replace(unused, "");
      }
      return { contents };
    });
  },
};

/** The style becomes a text of the script, which gives it to the document. */
const styleText = {
  name: "style-text",
  setup(plugin) {
    plugin.onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const made = await build({ entryPoints: [path], bundle: true, minify: true, write: false, charset: "utf8" });
      return { contents: made.outputFiles[0].text.trim(), loader: "text" };
    });
  },
};

const common = { absWorkingDir: HERE, bundle: true, format: "esm", charset: "utf8", logLevel: "warning" };

async function licenses() {
  const texts = BUNDLED.map(async (name) => {
    const folder = join(HERE, "node_modules", name);
    const { version } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
    return `${name} ${version}\n\n${(await readFile(join(folder, "LICENSE"), "utf8")).trim()}`;
  });
  return `/*!\nThis file contains:\n\n${(await Promise.all(texts)).join("\n\n")}\n*/`;
}

async function page(out) {
  await mkdir(out, { recursive: true });
  for (const name of await readdir(out)) if (name.endsWith(".js")) await rm(join(out, name));
  const { metafile } = await build({
    ...common,
    metafile: true,
    entryPoints: { console: "src/start.ts" },
    outdir: out,
    chunkNames: "[name]-[hash]",
    splitting: true,
    minify: true,
    legalComments: "none",
    plugins: [smallerPlot, styleText],
    jsx: "automatic",
    jsxImportSource: "preact",
    target: ["es2023"],
    supported: { "top-level-await": true },
  });
  const script = join(out, "console.js");
  await writeFile(script, `${await licenses()}\n${await readFile(script, "utf8")}`);
  await copyFile(join(HERE, "src", "favicon.svg"), join(out, "favicon.svg"));
  const html = await readFile(join(HERE, "src", "index.html"), "utf8");
  await writeFile(join(out, "index.html"), html.replace(/^ *<script/m, `${preloads(metafile)}$&`));
}

/** Return links to what the page needs in any case, so that a browser fetches it beside the script, not after it. */
function preloads({ outputs }) {
  const needed = new Set();
  const add = (path) => {
    if (needed.has(path)) return;
    needed.add(path);
    for (const { path: imported, kind } of outputs[path].imports) if (kind === "import-statement") add(imported);
  };
  for (const [path, { entryPoint }] of Object.entries(outputs)) if (NEEDED.includes(entryPoint)) add(path);
  const names = [...needed].map((path) => basename(path)).filter((name) => name !== "console.js");
  return names.map((name) => `    <link rel="modulepreload" href="${name}">\n`).join("");
}

async function tests(out) {
  await build({
    ...common,
    entryPoints: ["tests/*.test.ts"],
    outdir: out,
    platform: "node",
    outExtension: { ".js": ".test.mjs" },
    target: ["node20"],
  });
}

const [kind, out] = process.argv[2] === "--tests" ? [tests, process.argv[3]] : [page, process.argv[2]];
if (out === undefined) {
  console.error("usage: node build.mjs [--tests] DIRECTORY");
  process.exit(2);
}
await kind(out);
