// One conversation with one model, and the place on the page where one of them is shown.

import { Answer, read } from "./completion.js";
import { abilities, continues, isLoaded } from "./models.js";
import { Picker } from "./picker.js";
import { Said } from "./said.js";
import { Turns } from "./turns.js";

/** A conversation. A reply that streams goes on while another chat is shown. */
export class Thread {
  /** `page` has the door, the settings and the models; it is told of what changes. */
  constructor(chat, page) {
    this.chat = chat;
    this.page = page;
    this.list = document.createElement("div");
    this.list.className = "talk";
    this.list.tabIndex = 0;
    this.list.setAttribute("role", "log");
    this.list.setAttribute("aria-label", "Messages");
    this.running = null; // the AbortController of the reply that streams
    this.asked = Promise.resolve();
    this.turns = new Turns(this.list, "");
    Object.assign(this.turns, {
      isLoaded: (model) => isLoaded(page.entry(model) ?? {}),
      continues: (model) => continues(page.entry(model)),
      ready: () => page.ready(),
      onAgain: () => this.ask(),
      onAnswered: () => this.ask(),
      onContinue: (reply) => this.resume(reply),
      onEdited: (nth, text) => page.edited(nth, text),
      onDelete: (turn) => page.deleted(turn, this.turns),
      onChanged: () => page.keep(chat),
    });
  }

  request() {
    const { settings } = this.page;
    const system = settings.system();
    const messages = [...(system ? [{ role: "system", content: system }] : []), ...this.turns.messages()];
    return { ...settings.request(), model: this.model, messages, stream: true, stream_options: { include_usage: true } };
  }

  ask() {
    const turn = () => this.turns.begin(this.model, this.page.settings.wanted());
    this.asked = this.answer(this.request(), turn, () => new Answer());
    return this.asked;
  }

  /** Go on with a reply that was stopped: the model continues its last message. */
  resume(reply) {
    const body = { ...this.request(), model: reply.model, continue_final_message: true, add_generation_prompt: false };
    this.asked = this.answer(body, () => reply, () => reply.resume());
    return this.asked;
  }

  /** Go on with what was left: the reply, or the question that has none yet. */
  goOn() {
    const last = this.turns.turns.at(-1);
    if (last instanceof Said || last?.results) this.ask();
    else if (last?.canContinue) this.resume(last);
  }

  async answer(body, begun, made) {
    const { page, chat } = this;
    const turn = begun();
    const answer = made();
    let learned = null;
    const seen = () => {
      turn.show(answer);
      if (answer.firstAt !== null) learned ??= page.learn(body.model);
    };
    this.running = new AbortController();
    page.changed();
    try {
      await read(await page.door.complete(body, this.running.signal), answer, seen);
      answer.end();
      turn.finish(answer);
    } catch (failure) {
      answer.end();
      if (failure.name === "AbortError") turn.stop(answer);
      else turn.fail(answer, failure);
    }
    this.running = null;
    await page.keep(chat);
    page.changed();
  }

  /** End the reply that streams; what has come stays. */
  async stop() {
    this.running?.abort();
    await this.asked;
  }
}

/** Where a conversation is shown, with the choice of its model. */
export class Pane {
  constructor(section, page) {
    this.section = section;
    this.page = page;
    this.select = section.querySelector("select");
    this.picker = new Picker(this.select);
    this.thread = null;
    this.select.addEventListener("change", () => this.follow());
    section.querySelector("[data-do=end]").addEventListener("click", () => this.thread.turns.follow(true));
  }

  get model() {
    return this.select.value;
  }

  /** Show a conversation, or none. */
  show(thread) {
    this.section.hidden = !thread;
    this.section.querySelector(".talk")?.remove();
    this.thread = thread;
    if (!thread) return;
    this.section.querySelector("[data-do=end]").before(thread.list);
    this.follow();
    thread.turns.follow(true);
  }

  /** Choose a model, if the door has it. */
  choose(model) {
    if ([...this.select.options].some((each) => each.value === model)) this.select.value = model;
    this.follow();
  }

  follow() {
    if (this.thread) this.thread.model = this.model;
    this.picker.show();
    const entry = this.page.entry(this.model);
    this.section.querySelector("[data-is=abilities]").replaceChildren(...(entry ? abilities(entry) : []).map((word) => {
      const item = document.createElement("li");
      item.className = "badge";
      item.textContent = word;
      return item;
    }));
    this.page.settings.follow(); // the first model is chosen outside of their form
    this.page.changed();
  }
}
