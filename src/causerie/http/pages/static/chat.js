// The chat page: conversations that this browser keeps, one or two models, and the settings.

import "./site.js";
import "./rows.js";
import { Attachments } from "./attachments.js";
import { Conversations } from "./conversations.js";
import { Door } from "./door.js";
import { ChatList } from "./chat_list.js";
import { isLoaded, mayTakeImages, measured, option, takesImages } from "./models.js";
import { Pane, Thread } from "./pane.js";
import { Settings } from "./settings.js";
import { onSuggestion, showSuggestions } from "./suggestions.js";
import { toast } from "./toast.js";
import { deleteTurns } from "./turns.js";

const TITLE = 60; // characters of the first message that name a conversation

const element = (id) => document.getElementById(id);
const form = element("settings");
const draft = element("draft");
const base = element("base");
const suggestions = document.querySelector(".suggestions");
const narrow = matchMedia("(max-width: 70rem)");

/** A chat of one or two conversations; `kept` is what the browser keeps of it, from its first message on:
 *  also which of them wait for a reply, in case the page leaves before its end. */
class Chat {
  constructor(page, kept = null) {
    this.kept = kept;
    this.gone = false; // deleted, or the page leaves: what still comes of a reply is not kept
    this.threads = (kept?.panes ?? [[]]).map((turns, index) => {
      const thread = new Thread(this, page);
      thread.model = kept?.models[index] ?? "";
      thread.turns.fill(turns);
      return thread;
    });
  }

  get busy() {
    return this.threads.some((thread) => thread.running);
  }

  async stop() {
    await Promise.all(this.threads.map((thread) => thread.stop()));
  }

  /** Go on, once, with the replies that were being written when the page left. */
  goOn() {
    const { awaited = [] } = this.kept;
    this.kept.awaited = [];
    this.threads.forEach((thread, index) => {
      if (awaited[index] && thread.model === this.kept.models[index]) thread.goOn();
    });
  }
}

class ChatPage {
  constructor(conversations) {
    this.settings = new Settings(form);
    this.door = new Door(base.value);
    this.entries = [];
    this.opened = null; // until the models and the conversation of the address are there
    this.left = false; // replies ended because the page was left
    this.answering = new Map(); // chats whose replies come while another one is shown, by their ids
    this.panes = [...document.querySelectorAll(".pane")].map((section) => new Pane(section, this));
    const places = { button: element("attach"), input: element("file"), place: element("main"), draft };
    this.attachments = new Attachments(element("attachments"), (words) => toast(words), places);
    this.list = new ChatList(conversations, this);
    this.conversations = conversations;
    this.chat = new Chat(this);
    this.panes[0].show(this.chat.threads[0]);
    this.listen();
  }

  get active() {
    return this.panes.filter((pane) => pane.thread);
  }

  get busy() {
    return this.chat?.busy ?? false;
  }

  get waits() {
    return this.chat.threads.some((thread) => thread.turns.pending());
  }

  entry(model) {
    return this.entries.find((each) => each.id === model);
  }

  /** Whether the settings can be sent; says what is wrong with them. */
  ready() {
    if (this.busy) return false;
    try {
      this.settings.request();
      return this.entries.length > 0;
    } catch (failure) {
      this.showSettings(true);
      this.settings.show(failure);
      return false;
    }
  }

  /** Send what is written; while the page opens, once it is open. */
  async send() {
    await this.opened;
    const text = draft.value.trim();
    if (!(text || this.attachments.files.length) || this.waits || !this.ready() || !this.attachments.fit()) return;
    draft.value = "";
    this.say(text, this.attachments.take());
  }

  say(text, files) {
    for (const thread of this.chat.threads) {
      thread.turns.say(text, files);
      thread.ask();
    }
    this.keep(this.chat);
  }

  /** Send a message anew; the former one, with what followed it, stays as a version. */
  edited(nth, text) {
    const { files } = this.chat.threads[0].turns.said[nth];
    for (const { turns } of this.chat.threads) turns.branch(turns.said[nth]);
    this.say(text, files);
    return true;
  }

  /** Delete a message; one of the person in both conversations. */
  deleted(turn, turns) {
    const nth = turns.said.indexOf(turn);
    const all = this.chat.threads.map((thread) => [thread.turns, thread.turns.said[nth]]);
    const { chat } = this;
    deleteTurns(nth === -1 ? [[turns, turn]] : all, () => this.keep(chat));
  }

  can(ability) {
    const entries = this.active.map((pane) => this.entry(pane.model)).filter(Boolean);
    const has = (entry) => (ability === "images" ? takesImages(entry) : !measured(entry) || entry.supported_parameters?.includes(ability));
    return entries.length > 0 && entries.every(has);
  }

  /** Send a suggested message, with the settings that it shows; a picture is chosen first. */
  suggest(message, does) {
    if (does === "tools") form.elements.tools.value = form.elements.tools.placeholder;
    if (does === "schema") form.elements.namedItem("format").value = "json_schema";
    this.settings.follow();
    draft.value = message;
    if (does === "picture") element("file").click();
    else this.send();
    draft.focus();
  }

  /** Write a chat down; the settings and models are those of the one that is shown. */
  async keep(chat) {
    const panes = chat.threads.map((thread) => thread.turns.plain());
    if (chat.gone || !(chat.kept || panes[0].length)) return;
    const now = Date.now();
    if (!chat.kept) {
      const id = crypto.randomUUID?.() ?? `${now}-${Math.random()}`;
      const [first] = chat.threads[0].turns.turns;
      const text = (first.text() || first.files?.[0]?.name || "").replace(/\s+/g, " ").trim();
      chat.kept = { id, title: text.slice(0, TITLE) || "Chat", created: now };
      history.replaceState(null, "", `#${id}`);
    }
    if (chat === this.chat) chat.kept.settings = this.settings.values();
    const awaited = chat.threads.map((thread) => Boolean(thread.running));
    Object.assign(chat.kept, { updated: now, panes, models: chat.threads.map((thread) => thread.model), awaited });
    this.list.show(this.chat.kept);
    await this.list.put(chat.kept);
    if (!chat.busy) this.answering.delete(chat.kept.id);
    this.list.show(this.chat.kept);
  }

  /** The chats whose replies come now. */
  writing() {
    return [...new Set([this.chat, ...this.answering.values()])].filter((chat) => chat.kept && chat.busy);
  }

  /** Write down what has come of replies: a page that is hidden may be closed without a word. */
  keepArriving() {
    for (const chat of this.writing()) this.keep(chat);
  }

  /** Open the conversation that the address names, or begin a new one. Replies that come go on. */
  async open() {
    const id = location.hash.slice(1);
    if (id && this.chat.kept?.id === id) return;
    if (this.chat.busy) this.answering.set(this.chat.kept.id, this.chat);
    const found = id && !this.answering.has(id) ? await this.conversations.get(id) : null;
    if (location.hash.slice(1) !== id) return; // another one was opened meanwhile
    this.show(this.answering.get(id) ?? new Chat(this, found));
    if (!narrow.matches) draft.focus();
    await this.goOn();
  }

  /** Go on with replies that were left, if there are models, and no other tab writes them. */
  async goOn() {
    const { chat } = this;
    if (chat.busy || this.entries.length === 0 || !chat.kept?.awaited?.some(Boolean)) return;
    if (!(await this.conversations.writtenElsewhere(chat.kept.id)) && chat === this.chat && !chat.busy) chat.goOn();
  }

  /** Show a chat with its settings; a new one has none, whatever the last one had. */
  show(chat) {
    const chosen = this.panes.map((pane) => pane.model);
    const door = base.value;
    form.reset();
    base.value = door;
    this.chat = chat;
    if (chat.kept) this.settings.fill(chat.kept.settings);
    this.panes.forEach((pane, index) => {
      const thread = chat.threads[index] ?? null;
      const model = thread?.model || chosen[index];
      pane.show(thread);
      pane.choose(model);
    });
    element("compare").setAttribute("aria-pressed", String(chat.threads.length === 2));
    this.settings.follow();
    this.changed();
  }

  /** End what is deleted: a reply of it is not written down. */
  async forget() {
    const { chat } = this;
    chat.gone = true;
    await chat.stop();
    this.answering.delete(chat.kept?.id);
  }

  async begin() {
    if (location.hash) location.hash = "";
    else await this.open();
    draft.focus();
  }

  /** Add a second conversation that has the same messages, or take it away. */
  compare() {
    const [first, second] = this.panes;
    const { threads } = this.chat;
    if (threads.length === 2) threads.pop();
    else {
      threads.push(new Thread(this.chat, this));
      threads[1].turns.fill(threads[0].turns.plain());
      const other = this.entries.find((each) => each.id !== first.model);
      if (other) second.choose(other.id);
    }
    second.show(threads[1] ?? null);
    element("compare").setAttribute("aria-pressed", String(threads.length === 2));
    this.changed();
    if (this.chat.kept) this.keep(this.chat);
  }

  /** Show what there is to do now. */
  changed() {
    const { busy, waits } = this;
    element("send").hidden = busy;
    element("stop").hidden = !busy;
    element("send").disabled = waits || this.entries.length === 0;
    draft.disabled = waits;
    draft.placeholder = waits ? "Answer the tool calls first" : draft.dataset.placeholder;
    this.attachments.pictures = this.active.length > 0 && this.active.every((pane) => mayTakeImages(this.entry(pane.model)));
    showSuggestions(suggestions, (ability) => this.can(ability));
    element("compare").disabled = busy || this.entries.length === 0;
    for (const pane of this.panes) {
      pane.section.toggleAttribute("data-running", Boolean(pane.thread?.running));
      pane.section.querySelector(".empty").hidden = !pane.thread?.turns.empty || this.entries.length === 0;
    }
    this.list.show(this.chat.kept);
  }

  showSettings(shown) {
    form.hidden = !shown;
    element("show-settings").setAttribute("aria-expanded", String(shown));
  }

  /** Ask the door for its models; where it wants a key, ask for that. */
  async enter() {
    this.door = new Door(base.value);
    let failure = null;
    try {
      this.entries = await this.door.models();
    } catch (refused) {
      failure = refused;
      this.entries = [];
    }
    const wantsKey = failure?.status === 401;
    element("key").hidden = !wantsKey;
    if (wantsKey) element("key-text").focus();
    element("key-wrong").hidden = !this.door.key;
    element("away").hidden = !failure || failure.status === 401;
    element("away-why").textContent = failure?.message || "";
    element("none").hidden = Boolean(failure) || this.entries.length > 0;
    this.offer();
    this.settings.follow();
    this.changed();
    await this.goOn();
  }

  /** The models, as choices. */
  offer() {
    for (const pane of this.panes) {
      const before = pane.model;
      pane.select.replaceChildren(...this.entries.map(option));
      pane.choose(before);
    }
  }

  /** Once a model replies it is loaded, and its door knows whether it thinks. */
  async learn(model) {
    const entry = this.entry(model);
    if (!entry || isLoaded(entry)) return;
    try {
      this.entries = await this.door.models();
      this.offer();
    } catch { /* the next reply asks again */ }
  }

  listen() {
    element("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    draft.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send();
    });
    onSuggestion(suggestions, (message, does) => this.suggest(message, does));
    element("stop").addEventListener("click", () => this.chat.stop());
    element("compare").addEventListener("click", () => this.compare());
    narrow.addEventListener("change", () => this.showSettings(false)); // they would cover what is written
    element("show-settings").addEventListener("click", () => this.showSettings(form.hidden));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => this.changed());
    base.addEventListener("change", () => this.enter());
    element("key").addEventListener("submit", (event) => {
      event.preventDefault();
      this.door.key = element("key-text").value.trim();
      this.enter();
    });
    element("again").addEventListener("click", () => this.enter());
    element("new").addEventListener("click", () => this.begin());
    addEventListener("hashchange", () => this.open());
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.keepArriving();
    });
    this.conversations.writes = (id) => this.writing().some((chat) => chat.kept.id === id);
    addEventListener("pagehide", () => {
      this.keepArriving();
      for (const chat of this.writing()) {
        chat.gone = this.left = true;
        chat.stop();
      }
    });
    addEventListener("pageshow", () => {
      if (this.left) location.reload(); // the browser had kept the page, but not its replies
    });
    document.addEventListener("keydown", (event) => this.pressed(event));
  }

  pressed(event) {
    const command = event.ctrlKey || event.metaKey;
    if (event.key === "Escape" && this.busy && !document.querySelector("dialog[open]")) this.chat.stop();
    if (command && event.key.toLowerCase() === "k") {
      event.preventDefault();
      this.list.search();
    }
    if (command && event.shiftKey && event.key.toLowerCase() === "o") {
      event.preventDefault();
      this.begin();
    }
  }
}

const conversations = await Conversations.open();
await conversations.load();
const page = new ChatPage(conversations);
element("show-code").addEventListener("click", async () => {
  const { answerable, codeDialog } = await import("./code.js");
  const request = () => (page.busy || page.ready() ? answerable(page.chat.threads[0].request(), draft.value.trim()) : null);
  await codeDialog(request, () => page.door.base)();
}, { once: true });
element("unkept").hidden = conversations.kept;
page.opened = page.enter().then(() => page.open());
await page.opened;
document.querySelector(".chat-frame").dataset.ready = "";
page.changed();
