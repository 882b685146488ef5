// Chat with one model for visitors without an account: nothing is kept, and nothing can be set.

import { Answer, reach, read } from "./completion.js";
import { onSuggestion, showSuggestions } from "./suggestions.js";
import { Turns } from "./turns.js";

const element = (id) => document.getElementById(id);
const place = element("public-chat");
const draft = element("draft");
const turns = new Turns(element("talk"), "");
let running = null; // the AbortController of the reply that streams

function changed() {
  element("empty").hidden = !turns.empty;
  element("send").hidden = running !== null;
  element("stop").hidden = running === null;
  element("clear").disabled = turns.empty || running !== null;
  place.toggleAttribute("data-running", running !== null);
}

function complete(signal) {
  const messages = turns.messages().map(({ role, content }) => ({ role, content }));
  const token = document.querySelector("meta[name=form-token]").content;
  return reach(place.dataset.chat, {
    method: "POST",
    headers: { "content-type": "application/json", "x-form-token": token },
    body: JSON.stringify({ messages }),
    signal,
  });
}

async function ask() {
  running = new AbortController();
  const { signal } = running;
  const sent = complete(signal); // before there is a reply among the messages
  const turn = turns.begin(place.dataset.model, null);
  const answer = new Answer();
  changed();
  try {
    await read(await sent, answer, () => turn.show(answer));
    answer.end();
    turn.finish(answer);
  } catch (failure) {
    answer.end();
    if (failure.name === "AbortError") turn.stop(answer);
    else turn.fail(answer, failure);
  }
  running = null;
  changed();
}

function say(text) {
  turns.say(text);
  ask();
}

turns.ready = () => running === null;
turns.onAgain = () => ask();
turns.onEdited = (nth, text) => {
  turns.branch(turns.said[nth]);
  say(text);
  return true;
};
turns.onChanged = () => changed();

element("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = draft.value.trim();
  if (!text || running) return;
  draft.value = "";
  say(text);
});
draft.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  element("composer").requestSubmit();
});
element("stop").addEventListener("click", () => running?.abort());
element("clear").addEventListener("click", () => {
  turns.clear();
  changed();
  draft.focus();
});
document.querySelector("[data-do=end]").addEventListener("click", () => turns.follow(true));
const suggestions = document.querySelector(".suggestions");
showSuggestions(suggestions, () => false);
onSuggestion(suggestions, (message) => {
  if (!running) say(message);
  draft.focus();
});
addEventListener("pagehide", () => running?.abort());
changed();
