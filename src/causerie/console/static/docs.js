// The API reference: search, the code of each example, and running it against this very service.
// The key stays in its field. It goes into the header of a request to this origin and nowhere else.

import "./site.js";
import "./rows.js";
import { codeOf, pathOf } from "./request_code.js";
import { errorOf } from "./completion.js";

const MOST_SHOWN = 200000; // characters of a response
const access = document.getElementById("access");
const { key, model, base } = access.elements;
const find = document.getElementById("find");
const examples = [...document.querySelectorAll(".docs-example")];
const leads = [...document.querySelectorAll("[data-leads]")].map((link) => ({ link, part: document.getElementById(link.dataset.leads) }));
let marking = 0; // the frame in which the contents are marked
let read = null; // the link in the contents to what is being read
const part = (form, name) => form.querySelector(`[data-${name}]`);

// In a narrow window all operations with their fields are many screens: what they hold is closed there.
const narrowed = matchMedia("(max-width: 48rem)");
const folds = [...document.querySelectorAll("details.docs-fold")];

function fold() {
  for (const each of folds) each.open = !narrowed.matches;
}
narrowed.addEventListener("change", fold);
fold();
if (narrowed.matches) {
  for (const group of document.querySelectorAll("details.param-group")) group.open = false;
}

function baseOf(form) {
  return { plain: base.value, router: base.dataset.router, service: "" }[form.dataset.door];
}

function values(form, place) {
  const fields = [...form.querySelectorAll(`[data-place=${place}]`)];
  return Object.fromEntries(fields.map((each) => [each.name, each.value.trim()]));
}

/** The request that a form describes. Throws a SyntaxError where its body is no JSON. */
function requestOf(form) {
  const body = part(form, "body");
  const path = pathOf(form.dataset.path, values(form, "path"), values(form, "query"));
  return {
    method: form.dataset.method,
    base: location.origin + baseOf(form),
    url: location.origin + baseOf(form) + path,
    keyed: form.dataset.key !== "none",
    body: body ? JSON.parse(body.value) : null,
  };
}

/** Show the code of a form's request; a body that is no JSON is marked, and the code stays. */
function follow(form) {
  const body = part(form, "body");
  let wrong = "";
  try {
    const code = codeOf(requestOf(form));
    for (const pre of form.querySelectorAll("[data-language]")) pre.textContent = code[pre.dataset.language];
  } catch (error) {
    wrong = `The body is not JSON: ${error.message}`;
  }
  if (body) {
    body.setAttribute("aria-invalid", String(wrong !== ""));
    part(form, "wrong").textContent = wrong;
    part(form, "wrong").hidden = !wrong;
  }
  part(form, "run").disabled = wrong !== "";
}

function headers(keyed) {
  return keyed && key.value.trim() ? { authorization: `Bearer ${key.value.trim()}` } : {};
}

/** Ask this service; cookies stay at home, and nothing leads elsewhere. */
function ask(url, options) {
  return fetch(url, { credentials: "omit", cache: "no-store", redirect: "error", ...options });
}

async function run(form) {
  const request = requestOf(form);
  const control = new AbortController();
  const status = part(form, "status");
  const result = part(form, "result");
  const begun = performance.now();
  const took = () => `${((performance.now() - begun) / 1000).toFixed(2)} s`;
  part(form, "run").disabled = true;
  part(form, "stop").hidden = false;
  part(form, "stop").onclick = () => control.abort();
  status.textContent = "Waiting…";
  result.textContent = "";
  result.parentElement.hidden = true;
  try {
    const response = await ask(request.url, {
      method: request.method,
      headers: { ...headers(request.keyed), ...(request.body && { "content-type": "application/json" }) },
      body: request.body && JSON.stringify(request.body),
      signal: control.signal,
    });
    result.parentElement.hidden = false;
    await show(response, result);
    status.textContent = `${response.status} ${response.statusText}, ${took()}`;
  } catch (error) {
    status.textContent = error.name === "AbortError" ? `Stopped after ${took()}` : "The service does not answer.";
  } finally {
    part(form, "stop").hidden = true;
    part(form, "run").disabled = false;
  }
}

/** The body as it arrives; JSON with line breaks once it is there. */
async function show(response, result) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let shown = 0;
  for (;;) {
    const { value, done } = await reader.read();
    const text = decoder.decode(value ?? new Uint8Array(), { stream: !done });
    result.append(text.slice(0, MOST_SHOWN - shown));
    shown += text.length;
    if (done) break;
    if (shown > MOST_SHOWN) {
      result.append("\n… the rest is not shown");
      await reader.cancel();
      return;
    }
  }
  if (!(response.headers.get("content-type") || "").includes("json")) return;
  try {
    result.textContent = JSON.stringify(JSON.parse(result.textContent), null, 2);
  } catch { /* it is shown as it came */ }
}

/** Put a value where nobody has written another one. */
function fill(field, value) {
  if (field && value && !field.dataset.own) field.value = value;
}

function useModel(name, door) {
  const [author, ...slug] = name.split("/");
  for (const form of examples.filter((each) => each.dataset.door === door)) {
    const body = part(form, "body");
    if (body) fill(body, withModel(body.value, name));
    fill(form.querySelector("[name=id][data-place=path]"), name);
    if (slug.length) {
      fill(form.querySelector("[name=author]"), author);
      fill(form.querySelector("[name=slug]"), slug.join("/"));
    }
    follow(form);
  }
}

function withModel(text, name) {
  try {
    return JSON.stringify({ ...JSON.parse(text), model: name }, null, 2);
  } catch {
    return "";
  }
}

/** List the models of the chosen door; without the right key the field stays free. */
async function listModels() {
  const hint = document.getElementById("model-hint");
  try {
    const response = await ask(`${base.value}/models`, { headers: headers(true) });
    if (!response.ok) {
      hint.textContent = (await errorOf(response)).message || "The models cannot be listed.";
      return;
    }
    const ids = (await response.json()).data.map((each) => each.id);
    document.getElementById("models").replaceChildren(...ids.map((id) => new Option(id, id)));
    if (!model.dataset.own) model.value = ids[0] ?? "";
    hint.textContent = ids.length === 1 ? "This door has one model." : `This door has ${ids.length} models.`;
    useModel(model.value, "plain");
  } catch {
    hint.textContent = "The service does not answer.";
  }
}

async function listRouterModels() {
  if (!base.dataset.router) return;
  try {
    const response = await ask(`${base.dataset.router}/models?limit=1`, { headers: headers(true) });
    const [entry] = response.ok ? (await response.json()).data : [];
    if (entry) useModel(entry.id, "router");
  } catch { /* the examples keep the word MODEL */ }
}

/** Leave what has all the words; the parts that have nothing left go too. */
function search() {
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const each of document.querySelectorAll("[data-found]")) {
    const has = narrow(each, words);
    each.hidden = !has;
    count += has;
    const link = document.querySelector(`[data-leads="${each.id}"]`);
    if (link) link.hidden = !has;
  }
  for (const group of document.querySelectorAll("[data-group]")) {
    group.hidden = !group.querySelector("[data-found]:not([hidden])");
    if (words.length) for (const each of group.querySelectorAll(":scope > .docs-fold")) each.open = true;
  }
  document.getElementById("none").hidden = count > 0;
  document.getElementById("found").textContent = words.length ? `${count} found.` : "";
}

/** Whether a part has all the words; of its parameters, those that have them stay. */
function narrow(part, words) {
  const title = part.querySelector("header, summary")?.textContent ?? part.textContent;
  const about = wordsOf(part, title);
  const rest = words.filter((word) => !about.includes(word));
  const rows = [...part.querySelectorAll("[data-row]")];
  const fit = rows.filter((row) => rest.every((word) => wordsOf(row).includes(word)));
  for (const row of rows) row.hidden = rest.length > 0 && !fit.includes(row);
  if (words.length) for (const each of part.querySelectorAll(".docs-fold")) each.open = true;
  for (const group of part.querySelectorAll(".param-group")) {
    group.hidden = !group.querySelector("[data-row]:not([hidden])");
    if (words.length) group.open = true;
  }
  return rest.length === 0 || fit.length > 0;
}

function wordsOf(part, text = part.textContent) {
  return (part.dataset.words ||= text.toLowerCase());
}

/** Mark in the contents the part that is being read: the last one that begins above a line. */
function markRead() {
  const line = innerHeight / 4;
  const atEnd = scrollY + innerHeight >= document.documentElement.scrollHeight - 2;
  const before = shownParts().filter(({ top }) => top <= line);
  const { link } = (atEnd ? shownParts() : before).at(-1) ?? {};
  if (link === read) return;
  read?.removeAttribute("aria-current");
  read = link;
  link?.setAttribute("aria-current", "location");
  if (link?.checkVisibility()) keepInSight(link);
}

function shownParts() {
  return leads.filter(({ part }) => part.checkVisibility()).map(({ link, part }) => ({ link, top: part.getBoundingClientRect().top }));
}

/** Scroll the contents, and never the page. */
function keepInSight(link) {
  const sidebar = link.closest(".sidebar");
  const { top, bottom } = link.getBoundingClientRect();
  if (top < 0) sidebar.scrollTop += top - 48;
  if (bottom > innerHeight - 96) sidebar.scrollTop += bottom - innerHeight + 96;
}

/** An object that a link leads to is open. What a search has hidden comes back for it. */
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  if (target.closest("[hidden]")) {
    find.value = "";
    search();
  }
  if (target instanceof HTMLDetailsElement) target.open = true;
  for (const each of [target.closest(".docs-fold"), target.querySelector(":scope > .docs-fold")]) if (each) each.open = true;
  target.scrollIntoView();
}

access.addEventListener("submit", (event) => event.preventDefault());
find.addEventListener("input", search);
key.addEventListener("change", () => { listModels(); listRouterModels(); });
base.addEventListener("change", () => {
  listModels();
  examples.forEach(follow);
});
model.addEventListener("input", () => {
  model.dataset.own = "yes";
  useModel(model.value.trim(), "plain");
});
for (const form of examples) {
  form.addEventListener("input", (event) => {
    event.target.dataset.own = "yes";
    follow(form);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run(form);
  });
  follow(form);
}
document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof Element && event.target.closest("input, textarea, select");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  find.focus();
});
addEventListener("hashchange", reveal);
addEventListener("scroll", () => { marking ||= requestAnimationFrame(() => { marking = 0; markRead(); }); }, { passive: true });
reveal();
markRead();
listModels();
listRouterModels();
