// What was said in the playground, as it is shown: one item for each message.

import { Answer } from "./completion.js";
import { Sheet } from "./markdown.js";
import { Said } from "./said.js";

const REST = 3; // times the length of a painting, before the next one
const NEAR = 80; // pixels from the end within which new text is followed

function clone(name) {
  return document.getElementById(`turn-${name}`).content.firstElementChild.cloneNode(true);
}

function part(node, name) {
  return node.querySelector(`[data-is="${name}"]`);
}

function dollars(cost) {
  if (cost === null || cost === undefined) return "";
  return cost ? `$${cost >= 1 ? cost.toFixed(2) : cost.toFixed(12).replace(/^(0\.0*\d{1,3}).*$/, "$1").replace(/0+$/, "")}` : "free";
}

export class Turns {
  constructor(list, activity) {
    this.list = list;
    this.activity = activity;
    this.turns = [];
    this.others = []; // replies of a second model, beside those that the conversation goes on with
    this.isLoaded = () => true; // whether a model replies at once
    this.costOf = () => null; // what the usage of a model costs, in dollars
    this.ready = () => true; // whether there can be a request; what there is stays until then
    this.onAgain = () => {};
    this.onAnswered = () => {};
    this.onEdited = () => false; // gets which message of the person it is, and its new content
    this.atEnd = true;
    list.addEventListener("click", (event) => this.clicked(event));
    list.addEventListener("scroll", () => {
      this.atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < NEAR;
    }, { passive: true });
  }

  get empty() {
    return this.turns.length === 0;
  }

  /** What a next request sends. */
  messages() {
    return this.turns.flatMap((turn) => turn.messages());
  }

  /** Whether tool calls wait for their answers. */
  pending() {
    return this.turns.at(-1)?.waits ?? false;
  }

  say(content) {
    this.add(new Said(content));
    this.follow(true);
  }

  /** Take away this message of the person, counted from 0, and all that came after it. */
  cut(nth) {
    const said = this.turns.filter((each) => each instanceof Said)[nth];
    for (const each of this.turns.splice(this.turns.indexOf(said))) remove(each);
  }

  begin(model, schema) {
    const turn = new Reply(this, model, schema);
    this.add(turn);
    this.follow(true);
    return turn;
  }

  /** The reply of a second model, beside the last one. No later request sends it. */
  beside(model, schema) {
    const last = this.turns.at(-1);
    const turn = new Reply(this, model, schema);
    const pair = document.createElement("div");
    pair.className = "duo";
    last.node.replaceWith(pair);
    pair.append(last.node, turn.node);
    this.others.push(turn);
    this.follow(true);
    return turn;
  }

  add(turn) {
    this.turns.push(turn);
    this.list.append(turn.node);
  }

  clear() {
    this.turns = [];
    this.others = [];
    this.list.replaceChildren();
  }

  /** Keep the end in sight, unless somebody has scrolled away from it. */
  follow(always = false) {
    this.atEnd ||= always;
    if (this.atEnd) this.list.scrollTop = this.list.scrollHeight;
  }

  clicked(event) {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.classList.contains("code-copy")) copyText(button, button.closest("figure").querySelector("code").textContent);
    const turn = [...this.turns, ...this.others].find((each) => each.node.contains(button));
    if (button.dataset.do === "edit") turn.edit((content) => this.edited(turn, content));
    if (button.dataset.do === "copy") copyText(button, turn.text());
    if (["again", "answer"].includes(button.dataset.do) && !this.ready()) return;
    if (button.dataset.do === "again" && turn === this.turns.at(-1) && turn.finished) {
      this.turns.pop();
      remove(turn);
      this.onAgain();
    }
    if (button.dataset.do === "answer") {
      turn.answer();
      this.onAnswered();
    }
  }

  edited(turn, content) {
    const nth = this.turns.filter((each) => each instanceof Said).indexOf(turn);
    return this.ready() && this.onEdited(nth, content);
  }

  plain() {
    return this.turns.map((turn) => turn.plain()).filter(Boolean);
  }

  fill(kept) {
    for (const each of kept) {
      if (each.said !== undefined) {
        this.say(each.said);
        continue;
      }
      const answer = Object.assign(new Answer(), each.answer);
      const turn = this.begin(each.model, each.schema);
      turn.named(each.id);
      turn.results = each.results;
      if (each.stopped) turn.stop(answer);
      else turn.finish(answer);
    }
  }
}

function remove(turn) {
  (turn.node.closest(".duo") ?? turn.node).remove();
}

async function copyText(button, text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    return;
  }
  const label = button.querySelector("[data-label]") || button;
  if (label.textContent === "Copied") return;
  const before = label.textContent;
  label.textContent = "Copied";
  setTimeout(() => { label.textContent = before; }, 1600);
}

class Reply {
  constructor(turns, model, schema) {
    this.turns = turns;
    this.model = model;
    this.schema = schema;
    this.results = null; // what the tools gave, by hand
    this.stopped = false; // before its end, by hand or by a failure
    this.sound = false; // whether it may be sent back to the model
    this.arriving = null; // the answer, until it is finished
    this.painting = 0;
    this.rested = 0;
    this.node = clone("assistant");
    part(this.node, "model").textContent = model;
    part(this.node, "model").title = model;
    this.sheet = new Sheet(part(this.node, "text"));
    this.thoughts = new Sheet(part(this.node, "thought-text"));
    this.thought = part(this.node, "thought");
    this.thought.addEventListener("toggle", () => { this.touched ||= this.byHand; });
    this.thought.querySelector("summary").addEventListener("click", () => { this.byHand = true; });
    this.begun = performance.now();
    this.waiting = setInterval(() => this.showWaiting(), 1000);
    this.showWaiting();
  }

  /** How long nothing has come: a model that is not in memory is loaded first. */
  showWaiting() {
    const passed = Math.floor((performance.now() - this.begun) / 1000);
    const waits = this.arriving?.accepted ? "Accepted, waiting for the first token" : "Waiting";
    const doing = this.turns.isLoaded(this.model) ? waits : "Loading the model";
    this.state(passed < 2 ? doing : `${doing}, ${passed} s`);
    if (!this.node.isConnected && passed > 0) this.endWaiting(); // it was taken away
  }

  endWaiting() {
    clearInterval(this.waiting);
    part(this.node, "waits").hidden = true;
  }

  get waits() {
    return this.sound && Boolean(this.finished?.message.tool_calls?.length) && !this.results;
  }

  messages() {
    if (!this.sound) return [];
    const { message } = this.finished;
    const results = (this.results || []).map((content, index) => ({
      role: "tool", tool_call_id: message.tool_calls[index].id, content,
    }));
    return [message, ...results];
  }

  text() {
    return this.finished?.message.content || "";
  }

  named(id) {
    this.id = id;
    const link = part(this.node, "request");
    if (!id || !this.turns.activity) return;
    link.href = `${this.turns.activity}?request_id=${encodeURIComponent(id)}`;
    link.hidden = false;
  }

  state(text, tone = "") {
    const badge = part(this.node, "state");
    badge.className = tone ? `badge badge-${tone}` : "badge";
    badge.textContent = text;
    badge.hidden = !text;
  }

  /** Show what there is; several pieces within one frame are painted once. Where painting takes
   *  long, the next one waits: most of the time stays free for what the person types. */
  show(answer) {
    this.arriving = answer;
    this.painting ||= requestAnimationFrame((began) => {
      if (began < this.rested) {
        this.painting = 0;
        this.show(answer);
        return;
      }
      const from = performance.now();
      this.paint(answer);
      this.painting = 0;
      this.turns.follow();
      const now = performance.now();
      this.rested = now + REST * (now - from);
    });
  }

  /** Show the answer; once it is `whole`, nothing more comes. */
  paint(answer, whole = false) {
    const { message } = answer;
    const thinks = answer.thoughtAt === null;
    if (message.reasoning_content) {
      this.thought.hidden = false;
      this.thoughts.show(message.reasoning_content, !thinks || whole);
      part(this.node, "thought-word").textContent = thinks && !answer.endedAt ? "Thinking" : "Thought";
      part(this.node, "thought-time").textContent = thinks ? "" : lasted(answer.thoughtAt - answer.firstAt);
      if (!this.touched) this.thought.open = thinks && this.painting !== null && !answer.endedAt;
    }
    this.sheet.show(message.content || "", whole);
    this.calls(message.tool_calls || [], whole);
    if (answer.firstAt === null) return;
    this.endWaiting();
    this.state(thinks ? "Thinking" : "Writing");
  }

  calls(calls, whole) {
    const list = part(this.node, "calls");
    calls.forEach((call, index) => {
      if (!list.children[index]) list.append(clone("call"));
      const node = list.children[index];
      part(node, "name").textContent = call.function.name;
      const place = part(node, "arguments");
      if (whole) place.textContent = pretty(call.function.arguments);
      else appendTo(place, call.function.arguments);
    });
  }

  settle(answer) {
    cancelAnimationFrame(this.painting);
    this.painting = 0;
    this.arriving = null;
    this.finished = answer;
    this.endWaiting();
    this.paint(answer, true);
    this.state("");
    this.facts(answer);
    this.node.querySelector("[data-do=copy]").hidden = !this.text();
    part(this.node, "foot").hidden = false;
  }

  finish(answer) {
    this.sound = true;
    this.settle(answer);
    if (this.schema && answer.finish !== "tool_calls") this.judge(answer);
    if (answer.finish === "length") this.state("Cut at the limit", "warn");
    if (answer.finish === "content_filter") this.state("Ended by a filter", "warn");
    if (this.waits) this.ask();
    else if (this.results) this.answered();
    this.turns.follow();
  }

  stop(answer) {
    this.stopped = true;
    delete answer.message.tool_calls; // arguments that were cut off are no call
    this.sound = Boolean(answer.message.content);
    this.settle(answer);
    this.state("Stopped");
  }

  fail(answer, failure) {
    const calls = answer.message.tool_calls;
    delete answer.message.tool_calls;
    this.stopped = true;
    this.sound = Boolean(answer.message.content) && !calls;
    this.settle(answer);
    const note = part(this.node, "wrong");
    note.hidden = false;
    part(note, "message").replaceChildren(...coded(failure.message));
    const more = [failure.code && code(failure.code), failure.param && code(failure.param), failure.status >= 400 ? `status ${failure.status}` : ""];
    part(note, "more").replaceChildren(...more.filter(Boolean).flatMap((each, index) => (index ? [" · ", each] : [each])));
    this.state("Failed", "bad");
    this.turns.follow();
  }

  facts(answer) {
    const usage = answer.usage;
    const details = usage?.completion_tokens_details?.reasoning_tokens;
    const cached = usage?.prompt_tokens_details?.cached_tokens;
    const facts = [
      answer.speed && `${answer.speed.toFixed(1)} tokens/s`,
      answer.firstAt !== null && `TTFT ${seconds(answer.firstAt)}`,
      usage && `${count(usage.prompt_tokens)} input${cached ? ` (${count(cached)} cached)` : ""}`,
      usage && `${count(usage.completion_tokens)} output${details ? ` (${count(details)} thinking)` : ""}`,
      answer.endedAt !== null && `${seconds(answer.endedAt)} total`,
      dollars(usage?.cost ?? this.turns.costOf(this.model, usage)),
    ];
    part(this.node, "facts").replaceChildren(...facts.filter(Boolean).map((text) => {
      const item = document.createElement("li");
      item.textContent = text;
      return item;
    }));
  }

  /** Whether the answer is what the schema asks for. */
  async judge(answer) {
    const place = part(this.node, "verdict");
    const say = (kind, text) => {
      place.hidden = false;
      place.className = `note note-${kind}`;
      part(place, "message").textContent = text;
    };
    let value;
    try {
      value = JSON.parse(answer.message.content);
    } catch (failure) {
      say("bad", `Not JSON: ${failure.message}`);
      return;
    }
    const { check } = await import("./schema.js");
    const { problems, unchecked } = check(this.schema, value);
    const passed = unchecked.length ? ` Not checked here: ${unchecked.join(", ")}.` : "";
    if (problems.length === 0) {
      say("good", `Valid: the answer fits the schema.${passed}`);
      return;
    }
    say("bad", `The answer does not fit the schema.${passed}`);
    part(place, "problems").replaceChildren(...problems.slice(0, 20).map(({ at, text }) => {
      const item = document.createElement("li");
      item.append(code(at), " ", ...coded(text));
      return item;
    }));
  }

  /** Let the person answer the calls. */
  ask() {
    for (const node of part(this.node, "calls").children) part(node, "result").hidden = false;
    part(this.node, "answer").hidden = false;
    part(this.node, "calls").querySelector("textarea")?.focus();
  }

  answer() {
    const nodes = [...part(this.node, "calls").children];
    this.results = nodes.map((node) => node.querySelector("textarea").value);
    this.answered();
  }

  answered() {
    part(this.node, "answer").hidden = true;
    [...part(this.node, "calls").children].forEach((node, index) => {
      const field = node.querySelector("textarea");
      part(node, "result").hidden = false;
      field.value = this.results[index] ?? "";
      field.readOnly = true;
    });
  }

  /** What is kept of it. A reply that still arrives is kept as one that was stopped here. */
  plain() {
    const { model, schema, results, stopped, id } = this;
    if (this.arriving?.message.content) {
      const message = { ...this.arriving.message };
      delete message.tool_calls; // as in stop()
      return { model, schema, results, stopped: true, id, answer: { ...kept(this.arriving), message } };
    }
    return this.sound ? { model, schema, results, stopped, id, answer: kept(this.finished) } : null;
  }
}

function kept({ message, finish, usage, firstAt, thoughtAt, endedAt, id }) {
  return { message, finish, usage, firstAt, thoughtAt, endedAt, id };
}

function code(text) {
  const node = document.createElement("code");
  node.textContent = text;
  return node;
}

/** Words, of which those between backticks are code. */
function coded(words) {
  const parts = words.split("`");
  if (parts.length % 2 === 0) return [words]; // one of them has no other
  return parts.map((each, index) => (index % 2 ? code(each) : each));
}

/** Add to the text of an element what it lacks of a text that grows. */
function appendTo(place, text) {
  const shown = place.firstChild ?? place.appendChild(document.createTextNode(""));
  if (shown.length < text.length) shown.appendData(text.slice(shown.length));
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function lasted(milliseconds) {
  return milliseconds < 50 ? "" : `for ${seconds(milliseconds)}`;
}

function count(number) {
  return new Intl.NumberFormat().format(number);
}

function seconds(milliseconds) {
  return milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(1)} s`;
}
