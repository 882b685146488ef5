// The colours of listings, by highlight.js: its core comes with the first one, each language with its first.

import hljs from "./hljs.js";

const LONGEST = 50_000; // characters; colouring more would hold the page
// Languages, with other names that models give them.
const LANGUAGES = {
  bash: ["sh shell zsh console shellsession", () => import("./hljs_bash.js")],
  c: ["h", () => import("./hljs_c.js")],
  cpp: ["c++ cc hpp cxx", () => import("./hljs_cpp.js")],
  csharp: ["cs c#", () => import("./hljs_csharp.js")],
  css: ["scss less", () => import("./hljs_css.js")],
  diff: ["patch", () => import("./hljs_diff.js")],
  dockerfile: ["docker", () => import("./hljs_dockerfile.js")],
  go: ["golang", () => import("./hljs_go.js")],
  ini: ["toml conf properties", () => import("./hljs_ini.js")],
  java: ["", () => import("./hljs_java.js")],
  javascript: ["js jsx mjs node", () => import("./hljs_javascript.js")],
  json: ["jsonc json5 jsonl", () => import("./hljs_json.js")],
  kotlin: ["kt", () => import("./hljs_kotlin.js")],
  lua: ["", () => import("./hljs_lua.js")],
  makefile: ["make mk", () => import("./hljs_makefile.js")],
  markdown: ["md", () => import("./hljs_markdown.js")],
  php: ["", () => import("./hljs_php.js")],
  powershell: ["ps1 pwsh", () => import("./hljs_powershell.js")],
  python: ["py python3 py3", () => import("./hljs_python.js")],
  r: ["", () => import("./hljs_r.js")],
  ruby: ["rb", () => import("./hljs_ruby.js")],
  rust: ["rs", () => import("./hljs_rust.js")],
  scala: ["", () => import("./hljs_scala.js")],
  sql: ["postgresql sqlite mysql", () => import("./hljs_sql.js")],
  swift: ["", () => import("./hljs_swift.js")],
  typescript: ["ts tsx", () => import("./hljs_typescript.js")],
  xml: ["html svg xhtml vue", () => import("./hljs_xml.js")],
  yaml: ["yml", () => import("./hljs_yaml.js")],
};

function nameOf(language) {
  const wanted = language.toLowerCase();
  return Object.keys(LANGUAGES).find((name) => name === wanted || LANGUAGES[name][0].split(" ").includes(wanted));
}

async function register(name) {
  if (hljs.getLanguage(name)) return;
  hljs.registerLanguage(name, (await LANGUAGES[name][1]()).default);
  if (name === "xml") await Promise.all(["css", "javascript"].map(register));
}

/** Elements of a tree of tokens, without any markup as text. */
function nodes({ children }) {
  return children.map((child) => {
    if (typeof child === "string") return child;
    const span = document.createElement("span");
    span.className = (child.scope ?? "").split(".").map((part) => `hl-${part}`).join(" ");
    span.append(...nodes(child));
    return span;
  });
}

/** Colour the text of an element, if its language is known and the text is still the same. */
export async function highlight(element, language, text) {
  const name = nameOf(language);
  if (!name || text.length > LONGEST) return;
  await register(name);
  if (element.textContent !== text) return;
  // Its tokens, as a tree: the other form of them is markup.
  element.replaceChildren(...nodes(hljs.highlight(text, { language: name, ignoreIllegals: true })._emitter.rootNode));
}
