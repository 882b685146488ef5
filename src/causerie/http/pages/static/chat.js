// The chat page: conversations that this browser keeps, one or two models, and the settings.

import "./site.js";
import "./rows.js";
import { Attachments } from "./attachments.js";
import { Conversations } from "./conversations.js";
import { Door } from "./door.js";
import { ChatList } from "./chat_list.js";
import { measured, option, takesImages, thinks } from "./models.js";
import { Pane } from "./pane.js";
import { Settings } from "./settings.js";
import { onSuggestion, showSuggestions } from "./suggestions.js";
import { toast } from "./toast.js";

const TITLE = 60; // characters of the first message that name a conversation

const element = (id) => document.getElementById(id);
const form = element("settings");
const draft = element("draft");
const base = element("base");
const suggestions = document.querySelector(".suggestions");
const narrow = matchMedia("(max-width: 70rem)");

class ChatPage {
  constructor(conversations) {
    this.settings = new Settings(form);
    this.door = new Door(base.value);
    this.entries = [];
    this.current = null; // the conversation that is open; null before its first message
    this.opened = null; // until the models and the conversation of the address are there
    this.panes = [...document.querySelectorAll(".pane")].map((section) => new Pane(section, this));
    this.attachments = new Attachments(element("attachments"), (words) => toast(words));
    this.list = new ChatList(conversations, this);
    this.conversations = conversations;
    this.listen();
  }

  get active() {
    return this.panes.filter((pane) => pane.shown);
  }

  get busy() {
    return this.panes.some((pane) => pane.running);
  }

  get waits() {
    return this.active.some((pane) => pane.turns.pending());
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
    const content = this.attachments.content(draft.value.trim());
    if (!content.length || this.waits || !this.ready()) return;
    draft.value = "";
    this.attachments.clear();
    this.say(content);
  }

  say(content) {
    for (const pane of this.active) {
      pane.turns.say(content);
      pane.ask();
    }
    this.keep();
  }

  edited(nth, content) {
    for (const pane of this.active) pane.turns.cut(nth);
    this.say(content);
    return true;
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

  async stop() {
    await Promise.all(this.panes.map((pane) => pane.stop()));
  }

  /** Write the open conversation down. */
  async keep() {
    const panes = this.active.map((pane) => pane.turns.plain());
    if (panes[0].length === 0) return;
    const now = Date.now();
    if (!this.current) {
      const id = crypto.randomUUID?.() ?? `${now}-${Math.random()}`;
      const text = this.panes[0].turns.turns[0].text().replace(/\s+/g, " ").trim();
      this.current = { id, title: text.slice(0, TITLE) || "Picture", created: now };
      history.replaceState(null, "", `#${id}`);
    }
    const models = this.active.map((pane) => pane.model);
    Object.assign(this.current, { updated: now, panes, models, settings: this.settings.values() });
    await this.list.put(this.current);
  }

  /** Write down what has come of a reply: a page that is hidden may be closed without a word. */
  keepArriving() {
    if (this.busy) this.keep();
  }

  /** Open the conversation that the address names, or begin a new one. */
  async open() {
    const id = location.hash.slice(1);
    if (this.current?.id === id) return;
    await this.stop();
    const found = id ? await this.conversations.get(id) : null;
    this.current = found;
    this.compare(found?.panes.length === 2);
    if (found) this.settings.fill(found.settings);
    this.panes.forEach((pane, index) => {
      pane.fill(found?.panes[index] || []);
      if (found?.models[index]) pane.choose(found.models[index]);
    });
    this.settings.follow();
    this.changed();
    if (!narrow.matches) draft.focus();
  }

  async begin() {
    if (location.hash) location.hash = "";
    else await this.open();
    draft.focus();
  }

  compare(wanted) {
    const [first, second] = this.panes;
    if (wanted && !second.shown) {
      second.fill(first.turns.plain());
      const other = this.entries.find((each) => each.id !== first.model);
      if (other) second.choose(other.id);
    }
    second.section.hidden = !wanted;
    element("compare").setAttribute("aria-pressed", String(wanted));
    this.changed();
  }

  /** Show what there is to do now. */
  changed() {
    const { busy, waits } = this;
    element("send").hidden = busy;
    element("stop").hidden = !busy;
    element("send").disabled = waits || this.entries.length === 0;
    draft.disabled = waits;
    draft.placeholder = waits ? "Answer the tool calls first" : draft.dataset.placeholder;
    this.attachments.pictures = this.active.every((pane) => takesImages(this.entry(pane.model)));
    showSuggestions(suggestions, (ability) => this.can(ability));
    element("compare").disabled = busy || this.entries.length === 0;
    for (const pane of this.panes) {
      pane.section.toggleAttribute("data-running", pane.running !== null);
      pane.section.querySelector(".empty").hidden = !pane.turns.empty || this.entries.length === 0;
    }
    this.list.show(this.current);
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
    element("key").hidden = failure?.status !== 401;
    element("key-wrong").hidden = !this.door.key;
    element("away").hidden = !failure || failure.status === 401;
    element("away-why").textContent = failure?.message || "";
    element("none").hidden = Boolean(failure) || this.entries.length > 0;
    this.offer();
    this.settings.follow();
    this.changed();
  }

  /** The models, as choices. */
  offer() {
    for (const pane of this.panes) {
      const before = pane.model;
      pane.select.replaceChildren(...this.entries.map(option));
      pane.choose(before);
    }
  }

  /** Once a model has replied it is loaded, and its door knows whether it thinks. */
  async learn(model) {
    const entry = this.entry(model);
    if (!entry || thinks(entry) !== "maybe") return;
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
    draft.addEventListener("paste", (event) => this.attach(event, event.clipboardData.files));
    element("main").addEventListener("dragover", (event) => event.preventDefault());
    element("main").addEventListener("drop", (event) => this.attach(event, event.dataTransfer.files));
    element("attach").addEventListener("click", () => element("file").click());
    element("file").addEventListener("change", (event) => {
      this.attachments.add([...event.target.files]);
      event.target.value = "";
    });
    element("stop").addEventListener("click", () => this.stop());
    element("compare").addEventListener("click", async () => {
      this.compare(!this.panes[1].shown);
      if (this.current) await this.keep();
    });
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
    addEventListener("pagehide", () => {
      this.keepArriving();
      this.stop();
    });
    document.addEventListener("keydown", (event) => this.pressed(event));
  }

  pressed(event) {
    const command = event.ctrlKey || event.metaKey;
    if (event.key === "Escape" && this.busy && !document.querySelector("dialog[open]")) this.stop();
    if (command && event.key.toLowerCase() === "k") {
      event.preventDefault();
      this.list.search();
    }
    if (command && event.shiftKey && event.key.toLowerCase() === "o") {
      event.preventDefault();
      this.begin();
    }
  }

  attach(event, files) {
    if (files.length === 0) return;
    event.preventDefault();
    this.attachments.add([...files]);
  }
}

const conversations = await Conversations.open();
await conversations.load();
const page = new ChatPage(conversations);
element("show-code").addEventListener("click", async () => {
  const { answerable, codeDialog } = await import("./code.js");
  const request = () => (page.busy || page.ready() ? answerable(page.panes[0].request(), draft.value.trim()) : null);
  await codeDialog(request, () => page.door.base)();
}, { once: true });
page.showSettings(!narrow.matches);
element("unkept").hidden = conversations.kept;
page.opened = page.enter().then(() => page.open());
await page.opened;
document.querySelector(".chat-frame").dataset.ready = "";
page.changed();
