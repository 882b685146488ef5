// Sends the first request of a new key, which its dialog shows, in the API whose tab is open.
// The key goes into the header of a request to this origin and nowhere else.

import { errorOf } from "./completion.js";

const TEXTS = {
  chat: (reply) => reply.choices[0].message.content,
  responses: (reply) => reply.output.flatMap((item) => item.content ?? []).map((each) => each.text ?? "").join(""),
  messages: (reply) => reply.content.map((each) => each.text ?? "").join(""),
};

async function run(area, panel) {
  const bodies = JSON.parse(area.dataset.run);
  const open = panel.querySelector('[data-alike] > [role=tablist] [aria-selected="true"]')?.id.slice("tab-".length);
  const api = open in TEXTS ? open : "chat";
  const [send, status, reply] = ["send", "status", "reply"].map((name) => area.querySelector(`[data-run-${name}]`));
  const begin = performance.now();
  send.disabled = true;
  status.textContent = "Waiting…";
  reply.hidden = true;
  try {
    const response = await fetch(bodies[api].url, {
      method: "POST", credentials: "omit", cache: "no-store", redirect: "error",
      headers: { authorization: `Bearer ${panel.querySelector("#credential").textContent}`, "content-type": "application/json" },
      body: JSON.stringify(bodies[api].body),
    });
    reply.textContent = response.ok ? TEXTS[api](await response.json()) : (await errorOf(response)).message;
    status.textContent = `${response.status} ${response.ok ? "in" : "after"} ${((performance.now() - begin) / 1000).toFixed(1)} s`;
    reply.hidden = false;
  } catch {
    status.textContent = "The service does not answer.";
  }
  send.disabled = false;
}

export function press(button) {
  run(button.closest("[data-run]"), button.closest("#panel"));
}
