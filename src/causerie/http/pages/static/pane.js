// One conversation with one model: its messages, and the request that waits for a reply.

import { Answer, read } from "./completion.js";
import { abilities, thinks } from "./models.js";
import { Picker } from "./picker.js";
import { Turns } from "./turns.js";

export class Pane {
  /** `page` has the door, the settings and the models; it is told of what changes. */
  constructor(section, page) {
    this.section = section;
    this.page = page;
    this.select = section.querySelector("select");
    this.picker = new Picker(this.select);
    this.turns = new Turns(section.querySelector(".talk"), "");
    this.running = null; // the AbortController of the reply that streams
    this.asked = Promise.resolve();
    this.turns.isLoaded = (model) => thinks(page.entry(model) ?? {}) !== "maybe";
    this.turns.ready = () => page.ready();
    this.turns.onAgain = () => this.ask();
    this.turns.onAnswered = () => this.ask();
    this.turns.onEdited = (nth, content) => page.edited(nth, content);
    this.select.addEventListener("change", () => this.follow());
  }

  get shown() {
    return !this.section.hidden;
  }

  get model() {
    return this.select.value;
  }

  /** Choose a model, if the door has it. */
  choose(model) {
    if ([...this.select.options].some((each) => each.value === model)) this.select.value = model;
    this.follow();
  }

  follow() {
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

  request() {
    const { settings } = this.page;
    const system = settings.system();
    const messages = [...(system ? [{ role: "system", content: system }] : []), ...this.turns.messages()];
    return { ...settings.request(), model: this.model, messages, stream: true, stream_options: { include_usage: true } };
  }

  ask() {
    this.asked = this.answer();
    return this.asked;
  }

  async answer() {
    const body = this.request();
    const turn = this.turns.begin(this.model, this.page.settings.wanted());
    const answer = new Answer();
    this.running = new AbortController();
    this.page.changed();
    try {
      await read(await this.page.door.complete(body, this.running.signal), answer, () => turn.show(answer));
      answer.end();
      turn.finish(answer);
    } catch (failure) {
      answer.end();
      if (failure.name === "AbortError") turn.stop(answer);
      else turn.fail(answer, failure);
    }
    this.running = null;
    await this.page.keep();
    await this.page.learn(body.model);
    this.page.changed();
  }

  /** End the reply that streams; what has come stays. */
  async stop() {
    this.running?.abort();
    await this.asked;
  }

  fill(turns) {
    this.turns.clear();
    this.turns.fill(turns);
  }
}
