// Presets of the playground: settings under a name, kept in this browser for one person.

import { toast } from "./toast.js";

const list = document.querySelector("#presets ul");
const form = document.querySelector("#presets form");
const field = document.getElementById("preset-name");

/** Offer the presets that are kept as `key`; `values` are the settings as they are, and `put` takes those of a preset. */
export function offerPresets(key, values, put) {
  function kept() {
    try { return Object.entries(JSON.parse(localStorage.getItem(key)) ?? {}); } catch { return []; }
  }

  function keep(presets) {
    try {
      localStorage.setItem(key, JSON.stringify(Object.fromEntries(presets)));
    } catch {
      toast("The preset was not saved: this browser keeps no more of this page.");
    }
    show();
  }

  function show() {
    list.replaceChildren(...kept().map(([name, pairs]) => {
      const item = document.createElement("li");
      const use = button(name, () => put(pairs), "cut");
      const remove = button("×", () => {
        const before = kept();
        keep(before.filter(([other]) => other !== name));
        toast(`The preset ${name} was deleted.`, () => keep(before));
      });
      remove.setAttribute("aria-label", `Delete ${name}`);
      item.append(use, remove);
      return item;
    }));
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const name = field.value.trim();
    if (!name) return;
    const others = kept().filter(([other]) => other !== name);
    keep([...others, [name, values()]].sort(([one], [other]) => one.localeCompare(other)));
    form.reset();
  });
  show();
}

function button(words, act, className = "") {
  const made = document.createElement("button");
  Object.assign(made, { type: "button", textContent: words, className });
  made.addEventListener("click", act);
  return made;
}
