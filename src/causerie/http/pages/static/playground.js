// The playground: a conversation, its settings, and the request that they make.

import "./site.js";
import "./dialog.js";
import "./rows.js";
import "./palette.js";
import { Attachments } from "./attachments.js";
import { answerable, codeDialog } from "./code.js";
import { Answer, reach, read } from "./completion.js";
import { Picker } from "./picker.js";
import { costOf } from "./models.js";
import { offerPresets } from "./presets.js";
import { Settings } from "./settings.js";
import { toast } from "./toast.js";
import { Turns } from "./turns.js";

const play = document.getElementById("play");
const form = document.getElementById("settings");
const composer = document.getElementById("composer");
const draft = document.getElementById("draft");
const sendButton = document.getElementById("send");
const stopButton = document.getElementById("stop");
const token = document.querySelector('meta[name="form-token"]').content;
const lastModel = "playground model";
const kept = `playground ${play.dataset.user} ${play.dataset.chat}`;

const settings = new Settings(form);
const turns = new Turns(document.getElementById("talk"), play.dataset.activity);
const attachments = new Attachments(document.getElementById("attachments"), (words) => toast(words), {
  button: document.getElementById("attach"), input: document.getElementById("file"), place: play, draft,
});
const beside = [...form.querySelectorAll("[data-beside] > select")]; // the other models that answer
turns.costOf = (model, usage) => costOf(usage, optionOf(model));
let running = null; // the AbortController of the answer that streams

function messages() {
  const system = settings.system();
  return [...(system ? [{ role: "system", content: system }] : []), ...turns.messages()];
}

function request() {
  return { ...settings.request(), messages: messages(), stream: true, stream_options: { include_usage: true } };
}

/** Whether the settings can be sent; says what is wrong with them. */
function ready() {
  try {
    settings.request();
    return running === null;
  } catch (failure) {
    settings.show(failure);
    return false;
  }
}

async function ask() {
  if (!ready()) return;
  const body = request();
  const wanted = settings.wanted();
  const asked = [[body, turns.begin(settings.model, wanted), new Answer()]];
  for (const model of others()) asked.push([{ ...body, model }, turns.beside(model, wanted), new Answer()]);
  await answers(asked);
}

/** Show the replies to requests, each in its turn, until all have ended. */
async function answers(asked) {
  running = new AbortController();
  refresh();
  await Promise.all(asked.map((each) => stream(...each)));
  running = null;
  refresh();
  keep();
}

/** The models beside the first one, each once. */
function others() {
  const chosen = new Set(beside.map((select) => select.value));
  chosen.delete("");
  chosen.delete(settings.model);
  return [...chosen];
}

function optionOf(model) {
  return [...form.elements.model.options].find((each) => each.value === model);
}

/** Show the reply to a request in its turn, until its end. */
async function stream(body, turn, answer) {
  try {
    const routed = optionOf(body.model)?.matches("[data-routed]") ? "?routed=yes" : "";
    const response = await reach(play.dataset.chat + routed, {
      method: "POST",
      headers: { "content-type": "application/json", "x-form-token": token },
      body: JSON.stringify(body),
      signal: running.signal,
    });
    turn.named(response.headers.get("x-request-id"));
    await read(response, answer, () => turn.show(answer));
    answer.end();
    turn.finish(answer);
  } catch (failure) {
    answer.end();
    if (failure.name === "AbortError") turn.stop(answer);
    else turn.fail(answer, failure);
  }
}

function send() {
  const text = draft.value.trim();
  if (running || !(text || attachments.files.length) || turns.pending() || !ready() || !attachments.fit()) return;
  turns.say(text, attachments.take());
  draft.value = "";
  ask();
}

function refresh() {
  const waits = turns.pending();
  sendButton.hidden = running !== null;
  stopButton.hidden = running === null;
  sendButton.disabled = waits || !settings.model;
  draft.disabled = waits;
  draft.placeholder = waits ? "Answer the tool calls first" : draft.dataset.placeholder;
  const asked = [settings.model, ...others()].map(optionOf);
  attachments.pictures = asked.every((option) => /\bimages\b/.test(option?.dataset.abilities));
  beside.forEach((select, index) => {
    select.parentElement.hidden = index > 0 && !select.value && !beside[index - 1].value;
  });
  play.toggleAttribute("data-running", running !== null);
  document.getElementById("empty").hidden = !turns.empty;
  document.getElementById("clear").disabled = turns.empty;
  if (running === null && !waits && document.activeElement === document.body) draft.focus();
}

// What was said stays in this tab until it is closed, also when another page was looked at.
function keep() {
  try {
    sessionStorage.setItem(kept, JSON.stringify({ settings: settings.values(), turns: turns.plain() }));
    localStorage.setItem(lastModel, settings.model);
  } catch { /* no storage, or too much for it */ }
}

function restore() {
  try {
    const found = JSON.parse(sessionStorage.getItem(kept) || "null");
    const last = localStorage.getItem(lastModel);
    if (!found && last) settings.fill([["model", last]], play.dataset.model);
    if (!found) return;
    settings.fill(found.settings, play.dataset.model);
    turns.fill(found.turns);
  } catch { /* of another version: begin anew */ }
}

/** Put these settings in the place of all others. */
function put(pairs) {
  form.reset();
  settings.fill(pairs);
  for (const select of [form.elements.model, ...beside]) select.dispatchEvent(new Event("change")); // their pickers
  settings.follow();
  const wanted = pairs.find(([name]) => name === "model")?.[1] ?? settings.model;
  if (wanted !== settings.model) toast(`There is no model ${wanted} here any more.`);
}

/** Settings that a link carries behind its #, which no server sees. */
function takeShared() {
  const shared = new URLSearchParams(location.hash.slice(1));
  if (![...shared].length) return;
  put([...shared]);
  history.replaceState(history.state, "", location.pathname);
}

const share = document.getElementById("share");
share?.addEventListener("click", async () => {
  const told = settings.values().filter(([name, value]) => value !== "" && value !== String(initial.get(name) ?? ""));
  const model = settings.model ? [["model", settings.model]] : [];
  const link = `${location.origin}${location.pathname}#${new URLSearchParams([...model, ...told.filter(([name]) => name !== "model")])}`;
  await navigator.clipboard.writeText(link);
  const label = share.querySelector("[data-label]");
  label.textContent = "Link copied";
  setTimeout(() => { label.textContent = "Copy link to settings"; }, 2000);
});

composer.addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
draft.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && running && !document.querySelector("dialog[open]")) running.abort();
});
stopButton.addEventListener("click", () => running?.abort());
document.getElementById("clear").addEventListener("click", () => {
  running?.abort();
  turns.clear();
  refresh();
  keep();
  draft.focus();
});
turns.ready = ready;
turns.onAgain = () => ask();
turns.onContinue = (reply) => {
  const body = { ...request(), model: reply.model, continue_final_message: true, add_generation_prompt: false };
  answers([[body, reply, reply.resume()]]);
};
turns.continues = (model) => optionOf(model)?.dataset.parameters.split(" ").includes("continue_final_message") ?? false;
turns.onChanged = () => {
  refresh();
  keep();
};
turns.onEdited = (nth, text) => {
  const { files } = turns.said[nth];
  turns.branch(turns.said[nth]);
  turns.say(text, files);
  ask();
  return true;
};
turns.onAnswered = () => {
  if (!running) ask();
  refresh();
};
form.addEventListener("input", () => {
  refresh();
  keep();
});
form.addEventListener("submit", (event) => event.preventDefault());
document.getElementById("project")?.addEventListener("change", (event) => {
  location.href = event.target.value;
});
window.addEventListener("pagehide", () => running?.abort());

const door = document.getElementById("door");
codeDialog(() => (running || ready() ? answerable(request(), draft.value.trim()) : null), () => door.value);

for (const { value } of form.elements.model.options) for (const select of beside) select.add(new Option(value, value));
const initial = new FormData(form);
restore();
takeShared();
new Picker(form.elements.model);
for (const select of beside) new Picker(select);
document.querySelector("[data-do=end]").addEventListener("click", () => turns.follow(true));
settings.follow();
refresh();
offerPresets(`playground presets ${play.dataset.user}`, () => settings.values(), (pairs) => {
  put(pairs);
  refresh();
  keep();
});
