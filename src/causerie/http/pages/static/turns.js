// A conversation as it is shown: one turn for each message, of which there may be several versions.

import { Answer } from "./completion.js";
import { partsOf, Said } from "./said.js";
import { toast } from "./toast.js";

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
    this.others = []; // replies of other models, beside those that the conversation goes on with
    this.branched = null; // the versions of what is said next
    this.isLoaded = () => true; // whether a model replies at once
    this.continues = () => false; // whether a model goes on with a reply that was stopped
    this.costOf = () => null; // what the usage of a model costs, in dollars
    this.ready = () => true; // whether there can be a request; what there is stays until then
    this.onAgain = () => {};
    this.onContinue = () => {}; // gets the reply
    this.onAnswered = () => {};
    this.onEdited = () => false; // gets which message of the person it is, and its new text
    this.onDelete = (turn) => deleteTurns([[this, turn]], this.onChanged);
    this.onChanged = () => {}; // what is kept has changed, without a request
    this.atEnd = true;
    list.addEventListener("click", (event) => this.clicked(event));
    list.addEventListener("scroll", () => this.scrolled(), { passive: true });
  }

  /** Say whether the end is in sight, to what leads there. */
  scrolled() {
    this.atEnd = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < NEAR;
    this.list.toggleAttribute("data-away", !this.atEnd);
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

  say(text, files) {
    this.add(new Said(text, files));
    this.follow(true);
  }

  /** The messages of the person. */
  get said() {
    return this.turns.filter((each) => each instanceof Said);
  }

  /** Put a turn, with all after it, away as a version; what is said next is another one. */
  branch(turn) {
    const { tails, nth } = turn.versions ?? { tails: [null], nth: 0 };
    const at = this.turns.indexOf(turn);
    const [first, ...rest] = turn.plain() ? this.plain(at) : [];
    if (first) tails[nth] = [{ ...first, versions: undefined }, ...rest];
    else tails.splice(nth, 1); // a reply that failed is none
    this.branched = { tails: [...tails, null], nth: tails.length };
    for (const each of this.turns.splice(at)) remove(each);
  }

  /** Show the version before or after that of a turn. */
  turnTo(turn, step) {
    const { nth } = turn.versions;
    const gone = !turn.plain();
    this.branch(turn);
    const tails = this.branched.tails.slice(0, -1); // nothing new is said
    const next = Math.min(Math.max(gone && step > 0 ? nth : nth + step, 0), tails.length - 1);
    const [shown] = tails.splice(next, 1, null);
    this.branched = { tails, nth: next };
    this.fill(shown);
    this.onChanged();
  }

  begin(model, schema) {
    const turn = new Reply(this, model, schema);
    this.add(turn);
    this.follow(true);
    return turn;
  }

  /** The reply of another model, beside the last one. No later request sends it. */
  beside(model, schema) {
    const last = this.turns.at(-1);
    const turn = new Reply(this, model, schema);
    let row = last.node.closest(".duo");
    if (!row) {
      row = document.createElement("div");
      row.className = "duo";
      last.node.replaceWith(row);
      row.append(last.node);
    }
    row.append(turn.node);
    this.others.push(turn);
    this.follow(true);
    return turn;
  }

  add(turn) {
    this.turns.push(turn);
    this.list.append(turn.node);
    turn.versions = this.branched;
    this.branched = null;
    const { tails, nth } = turn.versions ?? { tails: [] };
    if (tails.length < 2) return;
    const steps = clone("versions");
    part(steps, "nth").textContent = `${nth + 1}/${tails.length}`;
    part(turn.node, "acts").prepend(steps);
  }

  clear() {
    this.turns = [];
    this.others = [];
    this.branched = null;
    this.list.replaceChildren();
  }

  /** Put a turn that was taken away back into its place. */
  putBack(turn, at) {
    const next = this.turns[at];
    this.turns.splice(at, 0, turn);
    if (next) (next.node.closest(".duo") ?? next.node).before(turn.node);
    else this.list.append(turn.node);
  }

  /** Keep the end in sight, unless somebody has scrolled away from it. */
  follow(always = false) {
    this.atEnd ||= always;
    if (this.atEnd) this.list.scrollTop = this.list.scrollHeight;
    this.scrolled();
  }

  clicked(event) {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.classList.contains("code-copy")) copyText(button, button.closest("figure").querySelector("code").textContent);
    const turn = [...this.turns, ...this.others].find((each) => each.node.contains(button));
    if (button.dataset.do === "edit") turn.edit((content) => this.edited(turn, content));
    if (button.dataset.do === "copy") copyText(button, turn.text());
    if (!["again", "answer", "continue", "delete", "older", "newer"].includes(button.dataset.do) || !this.ready()) return;
    const acts = {
      again: () => turn.finished && this.again(turn),
      continue: () => this.onContinue(turn),
      delete: () => this.onDelete(turn),
      older: () => this.turnTo(turn, -1),
      newer: () => this.turnTo(turn, 1),
      answer: () => {
        turn.answer();
        this.onAnswered();
      },
    };
    acts[button.dataset.do]();
  }

  again(turn) {
    if (turn !== this.turns.at(-1)) return;
    this.branch(turn);
    this.onAgain();
  }

  edited(turn, text) {
    return this.ready() && this.onEdited(this.said.indexOf(turn), text);
  }

  /** What is kept, from a place on. A reply that failed has its last version in its place. */
  plain(from = 0) {
    return this.turns.slice(from).flatMap((turn) => {
      const kept = turn.plain();
      const { tails, nth } = turn.versions ?? { tails: [] };
      if (tails.length < 2) return kept ? [kept] : [];
      if (kept) return [{ ...kept, versions: { tails, nth } }];
      const others = tails.toSpliced(nth, 1);
      const [[first, ...rest]] = others.splice(-1, 1, null);
      return [{ ...first, versions: { tails: others, nth: others.length - 1 } }, ...rest];
    });
  }

  fill(kept) {
    for (const each of kept) {
      this.branched = each.versions ?? this.branched;
      if (each.said !== undefined) {
        const { said, files } = partsOf(each);
        this.say(said, files);
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

/** Delete messages of conversations, each with its conversation, until somebody takes it back. */
export function deleteTurns(pairs, changed) {
  const places = pairs.map(([turns, turn]) => turns.turns.indexOf(turn));
  pairs.forEach(([turns, turn], index) => {
    turns.turns.splice(places[index], 1);
    remove(turn);
  });
  changed();
  toast("The message was deleted.", () => {
    pairs.forEach(([turns, turn], index) => turns.putBack(turn, places[index]));
    changed();
  });
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

let markdown = null; // what reads Markdown: it comes with the first reply

async function loadMarkdown() {
  markdown ??= await import("./markdown.js");
}

/** A text in Markdown that grows; until that can be read, as it is. */
class Prose {
  constructor(element, shown) {
    this.element = element;
    this.shown = shown; // called where it is shown later
    this.sheet = null;
    this.latest = null;
    loadMarkdown().catch(() => {}); // while the model thinks
  }

  show(text, whole) {
    const waits = this.latest !== null;
    this.latest = markdown ? null : [text, whole];
    if (markdown) {
      if (!this.sheet) this.element.replaceChildren();
      this.sheet ??= new markdown.Sheet(this.element);
      this.sheet.show(text, whole);
      return;
    }
    this.element.textContent = text;
    if (waits) return;
    loadMarkdown().then(() => {
      if (this.latest) this.show(...this.latest);
      this.shown();
    }, () => { this.latest = null; }); // the next piece tries again
  }
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
    this.sheet = new Prose(part(this.node, "text"), () => turns.follow());
    this.thoughts = new Prose(part(this.node, "thought-text"), () => turns.follow());
    this.thought = part(this.node, "thought");
    this.thought.addEventListener("toggle", () => { this.touched ||= this.byHand; });
    this.thought.querySelector("summary").addEventListener("click", () => { this.byHand = true; });
    this.wait();
  }

  wait() {
    this.begun = performance.now();
    this.waiting = setInterval(() => this.showWaiting(), 1000);
    part(this.node, "waits").hidden = false;
    this.showWaiting();
  }

  /** Go on with a reply that was stopped or cut; gives the answer, which begins with what there is. */
  resume() {
    const answer = new Answer();
    answer.message = { ...this.finished.message };
    this.finished = null;
    this.stopped = this.sound = false;
    this.arriving = answer;
    part(this.node, "wrong").hidden = part(this.node, "foot").hidden = true;
    this.wait();
    return answer;
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

  /** Whether it was stopped or cut, and its model goes on with such a reply. */
  get canContinue() {
    const cut = this.stopped || this.finished?.finish === "length";
    return Boolean(cut && this.sound && this.text()) && this.turns.continues(this.model);
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
    this.sheet.show(whole ? readable(message.content || "") : message.content || "", whole);
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
    this.node.querySelector("[data-do=continue]").hidden = !this.canContinue;
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

/** A text that is JSON as a whole, as a listing of it; any other as it is. */
function readable(text) {
  const shown = /^\s*[[{]/.test(text) ? pretty(text, "") : "";
  return shown ? `~~~json\n${shown}\n~~~` : text;
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

function pretty(text, otherwise = text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return otherwise;
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
