// The API reference: search, the code of each example, and running it against this very service.
// The key stays in its field. It goes into the header of a request to this origin and nowhere else.

import "./site.js";
import "./rows.js";
import { codeOf, pathOf } from "./request_code.js";
import { errorOf } from "./completion.js";

const MOST_SHOWN = 200000; // characters of a response
const byId = (id) => document.getElementById(id);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const part = (form, name) => form.querySelector(`[data-${name}]`);
const { key, model, base } = byId("access").elements;
const table = JSON.parse(byId("access").dataset.table);
const [find, examples] = [byId("find"), all(".docs-example")];

// The page is the same at every address of the service: its own comes before the paths of the quick start.
for (const each of all("[data-origin]")) each.textContent = each.textContent.replace(/^(curl )?\//, `$1${location.origin}/`);

// In a narrow window all operations with their fields are many screens: what they hold is closed there.
const narrow = matchMedia("(max-width: 48rem)");
const fold = () => { for (const each of all("details.docs-fold")) each.open = !narrow.matches; };
if (narrow.matches) for (const group of all("details.param-group")) group.open = false;

const baseOf = (form) => ({ plain: base.value, router: base.dataset.router, service: "" })[form.dataset.door];

const values = (form, place) => Object.fromEntries(all(`[data-place=${place}]`, form).map((each) => [each.name, each.value.trim()]));

/** The request that a form describes. Throws a SyntaxError where its body is no JSON. */
function requestOf(form) {
  const body = part(form, "body");
  const base = location.origin + baseOf(form);
  return {
    method: form.dataset.method,
    base,
    path: form.dataset.path,
    url: base + pathOf(form.dataset.path, values(form, "path"), values(form, "query")),
    keyed: form.dataset.key !== "none",
    body: body ? JSON.parse(body.value) : null,
  };
}

/** Show the code of a form's request; a body that is no JSON is marked, and the code stays. */
function showCode(form) {
  let wrong = "";
  try {
    const code = codeOf(table, requestOf(form));
    for (const pre of all("[data-language]", form)) pre.textContent = code[pre.dataset.language.toLowerCase()];
  } catch (error) {
    wrong = `The body is not JSON: ${error.message}`;
  }
  part(form, "run").disabled = wrong !== "";
  if (!part(form, "body")) return;
  part(form, "body").setAttribute("aria-invalid", String(wrong !== ""));
  Object.assign(part(form, "wrong"), { textContent: wrong, hidden: !wrong });
}

/** Ask this service; no cookies are sent, and no redirection is followed. */
function ask(url, keyed, options = {}) {
  const authorization = keyed && key.value.trim() && { authorization: `Bearer ${key.value.trim()}` };
  const headers = { ...authorization, ...(options.body && { "content-type": "application/json" }) };
  return fetch(url, { credentials: "omit", cache: "no-store", redirect: "error", ...options, headers });
}

async function run(form) {
  const { method, url, keyed, body } = requestOf(form);
  const [status, result, stop] = ["status", "result", "stop"].map((name) => part(form, name));
  const control = new AbortController();
  const begin = performance.now();
  const seconds = () => `${((performance.now() - begin) / 1000).toFixed(2)} s`;
  const running = (yes) => { part(form, "run").disabled = yes; stop.hidden = !yes; };
  running(true);
  stop.onclick = () => control.abort();
  status.textContent = "Waiting…";
  result.textContent = "";
  result.parentElement.hidden = true;
  try {
    const response = await ask(url, keyed, { method, body: body && JSON.stringify(body), signal: control.signal });
    result.parentElement.hidden = false;
    await show(response, result);
    status.textContent = `${response.status} ${response.statusText}, ${seconds()}`;
  } catch (error) {
    status.textContent = error.name === "AbortError" ? `Stopped after ${seconds()}` : "The service does not answer.";
  } finally {
    running(false);
  }
}

/** Show a body as it arrives; JSON is indented once it is complete. */
async function show(response, result) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let shown = 0;
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    result.append(read.value.slice(0, MOST_SHOWN - shown));
    shown += read.value.length;
    if (shown <= MOST_SHOWN) continue;
    result.append("\n… the rest is not shown");
    return reader.cancel();
  }
  if (response.headers.get("content-type")?.includes("json")) result.textContent = indented(result.textContent);
}

function indented(text, more = {}) {
  try {
    return JSON.stringify(Object.assign(JSON.parse(text), more), null, 2);
  } catch {
    return text;
  }
}

/** Put a value where nobody has written another one. */
function fill(field, value) {
  if (field && value && !field.dataset.own) field.value = value;
}

function useModel(name, door) {
  const [author, ...slug] = name.split("/");
  for (const form of examples.filter((each) => each.dataset.door === door)) {
    const body = part(form, "body");
    if (body) fill(body, indented(body.value, { model: name }));
    const inPath = slug.length ? { id: name, author, slug: slug.join("/") } : { id: name };
    for (const field of Object.keys(inPath)) fill(form.querySelector(`[name=${field}][data-place=path]`), inPath[field]);
    showCode(form);
  }
}

/** List the models of the chosen door; without the right key the field stays free. */
async function listModels() {
  const hint = byId("model-hint");
  try {
    const response = await ask(`${base.value}/models`, true);
    if (!response.ok) return void (hint.textContent = (await errorOf(response)).message || "The models cannot be listed.");
    const ids = (await response.json()).data.map((each) => each.id);
    byId("models").replaceChildren(...ids.map((id) => new Option(id, id)));
    if (!model.dataset.own) model.value = ids[0] ?? "";
    hint.textContent = ids.length === 1 ? "This door has one model." : `This door has ${ids.length} models.`;
    useModel(model.value, "plain");
  } catch {
    hint.textContent = "The service does not answer.";
  }
}

async function listRouterModels() {
  if (!base.dataset.router) return;
  const response = await ask(`${base.dataset.router}/models?limit=1`, true).catch(() => null);
  const [entry] = response?.ok ? (await response.json()).data : [];
  if (entry) useModel(entry.id, "router"); // else the examples keep the word MODEL
}

const wordsOf = (part, text = part.textContent) => (part.dataset.words ||= text.toLowerCase());

/** Show what has all the words; a part without any of them is hidden, and its link too. */
function search() {
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length) for (const each of all("details.docs-fold, details.param-group")) each.open = true;
  const found = all("[data-found]").filter((each) => {
    each.hidden = !matches(each, words);
    const link = document.querySelector(`[data-leads="${each.id}"]`);
    if (link) link.hidden = each.hidden;
    return !each.hidden;
  });
  for (const group of all("[data-group]")) group.hidden = !group.querySelector("[data-found]:not([hidden])");
  byId("none").hidden = found.length > 0;
  byId("found").textContent = words.length ? `${found.length} found.` : "";
}

/** Return whether a part has all the words; its rows that lack those are hidden. */
function matches(part, words) {
  const about = wordsOf(part, (part.querySelector("header, summary") ?? part).textContent);
  const rest = words.filter((word) => !about.includes(word));
  for (const row of all("[data-row]", part)) row.hidden = !rest.every((word) => wordsOf(row).includes(word));
  const shown = (each) => each.querySelector("[data-row]:not([hidden])") !== null;
  for (const group of all(".param-group", part)) group.hidden = !shown(group);
  return rest.length === 0 || shown(part);
}

/** Mark the part that is being read, the one at a fourth of the window, in the contents. */
const reading = new IntersectionObserver((entries) => {
  const entry = entries.findLast((each) => each.isIntersecting);
  if (!entry) return;
  document.querySelector("[data-leads][aria-current]")?.removeAttribute("aria-current");
  const link = links.get(entry.target);
  link.setAttribute("aria-current", "location");
  if (link.checkVisibility()) link.scrollIntoView({ block: "nearest" });
}, { rootMargin: "-25% 0px -74.9% 0px" });
const links = new Map(all("[data-leads]").map((link) => [byId(link.dataset.leads).closest("article, section"), link]));

/** Open what the address leads to. What a search has hidden is shown again. */
function reveal() {
  const target = byId(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  if (target.closest("[hidden]")) {
    find.value = "";
    search();
  }
  for (const each of [target, target.closest(".docs-fold"), target.querySelector(":scope > .docs-fold")]) {
    if (each instanceof HTMLDetailsElement) each.open = true;
  }
  target.scrollIntoView();
}

byId("access").onsubmit = (event) => event.preventDefault();
key.onchange = () => { listModels(); listRouterModels(); };
base.onchange = () => { listModels(); examples.forEach(showCode); };
model.oninput = () => { model.dataset.own = "yes"; useModel(model.value.trim(), "plain"); };
for (const form of examples) {
  form.oninput = (event) => { event.target.dataset.own = "yes"; showCode(form); };
  form.onsubmit = (event) => { event.preventDefault(); run(form); };
  showCode(form);
}
find.addEventListener("input", search);
document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof Element && event.target.closest("input, textarea, select");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  find.focus();
});
addEventListener("hashchange", reveal);
narrow.addEventListener("change", fold);
fold();
reveal();
for (const each of links.keys()) reading.observe(each);
listModels();
listRouterModels();
