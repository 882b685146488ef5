// Rows of a form that can be added and taken away, parts that a choice shows, and tabs.

const MANY = "select[data-picks]:not([data-picked]):has(option:nth-child(9))"; // more options than picker.js calls few
let typed = ""; // into such a select, while its script comes

/** Open the search of a select with many options, by mouse, touch or key; its script comes at the first use. */
async function search(event) {
  const select = event.target instanceof Element ? event.target.closest(MANY) : null;
  const { key = "Enter", altKey, ctrlKey, metaKey, button = 0 } = event;
  const letter = key.length === 1 && !altKey && (typed || key !== " ") ? key : ""; // a space alone opens it
  if (!select || button || ctrlKey || metaKey || !(letter || [" ", "ArrowDown", "ArrowUp", "Enter"].includes(key))) return;
  event.preventDefault(); // the browser's own list
  if (event.type === "mousedown") return; // a click follows
  typed += letter;
  const { pick } = await import("./picker.js");
  pick(select, typed);
  typed = "";
}

for (const kind of ["mousedown", "click", "keydown"]) document.addEventListener(kind, search);

function follow(part) {
  for (const row of part.querySelectorAll("[data-plain]")) row.remove(); // for who has no scripts
  for (const element of part.querySelectorAll("[data-shown-by]")) {
    const [name, value] = element.dataset.shownBy.split("=");
    const form = element.closest("form");
    const chosen = form?.querySelector(`[name="${name}"]:checked`) ?? form?.elements[name];
    element.hidden = chosen?.value !== value;
  }
}

/** Who removes by the keyboard goes on from the row alongside it, or from where one is added. */
function remove(row) {
  const alongside = row.nextElementSibling ?? row.previousElementSibling;
  const adder = document.querySelector(`[data-add-row="${row.parentElement.id.replace(/-rows$/, "")}"]`);
  row.remove();
  (alongside?.querySelector("[data-remove-row]") ?? adder)?.focus();
}

document.addEventListener("click", (event) => {
  const target = event.target instanceof Element ? event.target : null;
  const adder = target?.closest("[data-add-row]");
  if (adder) {
    const template = document.getElementById(adder.dataset.addRow);
    const row = template.content.firstElementChild.cloneNode(true);
    document.getElementById(`${adder.dataset.addRow}-rows`).append(row);
    row.querySelector("select, input")?.focus();
  }
  const row = target?.closest("[data-remove-row]")?.closest(".row");
  if (row) remove(row);
});
document.addEventListener("change", (event) => follow(event.target.closest("form") ?? document));
document.addEventListener("htmx:afterSettle", (event) => follow(event.target));
follow(document);

/** Where lists of tabs are alike, a language that is chosen in one is chosen in all that have it. */
function choose(tab) {
  const all = [...(tab.closest("[data-alike]")?.querySelectorAll("[role=tab]") ?? [])];
  for (const chosen of new Set([tab, ...all.filter((each) => each.textContent === tab.textContent)])) {
    for (const each of chosen.closest("[role=tablist]").querySelectorAll("[role=tab]")) {
      each.setAttribute("aria-selected", String(each === chosen));
      each.tabIndex = each === chosen ? 0 : -1;
      document.getElementById(each.getAttribute("aria-controls")).hidden = each !== chosen;
    }
  }
}

/** Where a key leads among so many tabs, from one of them; undefined where it leads nowhere. */
function led(key, from, count) {
  return {
    ArrowLeft: (from + count - 1) % count, ArrowRight: (from + 1) % count, Home: 0, End: count - 1,
  }[key];
}

document.addEventListener("click", (event) => {
  const tab = event.target instanceof Element ? event.target.closest("[role=tab]") : null;
  if (tab) choose(tab);
});
document.addEventListener("keydown", (event) => {
  const tab = event.target instanceof Element ? event.target.closest("[role=tab]") : null;
  if (!tab || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const all = [...tab.closest("[role=tablist]").querySelectorAll("[role=tab]")];
  const next = all[led(event.key, all.indexOf(tab), all.length)];
  if (!next) return;
  event.preventDefault();
  choose(next);
  next.focus();
});
