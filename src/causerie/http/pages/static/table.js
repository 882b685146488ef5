// Tables: columns that are hidden, rows that are sorted and narrowed down on the page, arrow keys.

const KEPT = "columns";
const sorted = new Map(); // by the name of the table: the label of a column, and whether it falls

function hidden() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT) ?? "{}");
    return kept && typeof kept === "object" ? kept : {};
  } catch {
    return {};
  }
}

function hide(table, label, away) {
  const kept = hidden();
  const others = (Array.isArray(kept[table]) ? kept[table] : []).filter((each) => each !== label);
  kept[table] = away ? [...others, label] : others;
  try { localStorage.setItem(KEPT, JSON.stringify(kept)); } catch { /* for this page only */ }
  document.dispatchEvent(new Event("columns"));
}

function boxOf(name) {
  return document.querySelector(`[data-table="${CSS.escape(name)}"]`);
}

function titles(box) {
  return [...(box?.querySelectorAll("thead th, [data-titles] [data-sorts]") ?? [])];
}

/** The choice of columns, made anew whenever it opens. */
function fill(menu) {
  const name = menu.dataset.columns;
  const away = hidden()[name] ?? [];
  const list = menu.querySelector("fieldset");
  for (const old of list.querySelectorAll("label")) old.remove();
  for (const title of titles(boxOf(name)).filter((each) => each.dataset.label)) {
    const label = document.createElement("label");
    label.className = "check";
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = !away.includes(title.dataset.label);
    box.addEventListener("change", () => hide(name, title.dataset.label, !box.checked));
    label.append(box, title.textContent.trim());
    list.append(label);
  }
}

/** What a cell is sorted by: a number that it states, a time, or its words. */
function value(row, title, column) {
  const { label } = title.dataset;
  const cell = label ? row.querySelector(`[data-label="${CSS.escape(label)}"]`) : row.children[column];
  if (!cell) return "";
  if (cell.dataset.value !== undefined) return cell.dataset.value === "" ? null : Number(cell.dataset.value);
  return cell.querySelector("time")?.dateTime ?? cell.textContent.trim().toLowerCase();
}

function compare(one, other) {
  if (one === null || other === null) return (one === null) - (other === null); // not known is last
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one).localeCompare(String(other), "en", { numeric: true });
}

/** Sort the rows of a table as was asked; those that say the same stay as they were. */
function sort(box) {
  const wanted = sorted.get(box.dataset.table);
  if (!wanted) return;
  const all = titles(box);
  const title = all.find((each) => each.textContent.trim() === wanted.words);
  if (!title) return;
  for (const each of all) mark(each, each === title ? wanted.down : null);
  const column = all.indexOf(title);
  for (const [parent, rows] of Map.groupBy(rowsOf(box), (row) => row.parentElement)) {
    const keyed = rows.map((row) => [value(row, title, column), row]);
    keyed.sort(([one], [other]) => {
      const order = compare(one, other);
      return wanted.down && one !== null && other !== null ? -order : order;
    });
    const below = new Map(rows.map((row) => [row, row.nextElementSibling?.matches("[data-inside]") ? [row.nextElementSibling] : []]));
    parent.append(...keyed.flatMap(([, row]) => [row, ...below.get(row)]));
  }
}

/** Say by a title how its column is sorted, if it is; only heads of tables have words for it. */
function mark(title, down) {
  const order = { true: "descending", false: "ascending" }[down];
  if (order) title.dataset.order = order;
  else delete title.dataset.order;
  if (title.matches("th") && order) title.setAttribute("aria-sort", order);
  else title.removeAttribute("aria-sort");
  if (!title.matches("th")) title.querySelector(".sort")?.setAttribute("aria-pressed", String(Boolean(order)));
}

/** Rows of the same parent are sorted among each other; what is inside of one stays below it. */
function rowsOf(box) {
  return [...box.querySelectorAll("tbody > tr:not([data-inside]), [data-row]")];
}

/** Titles that sort become buttons. */
function prepare(box) {
  for (const title of box.querySelectorAll("[data-sorts]:not(:has(.sort))")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...title.childNodes);
    title.append(button);
    title.classList.add("sortable");
  }
  sort(box);
  narrow(box);
}

function narrow(box) {
  const field = document.querySelector(`[data-filters="${CSS.escape(box.dataset.table)}"] input`);
  if (!field) return;
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length && !box.querySelector("tr[hidden], [data-row][hidden]")) return;
  for (const row of rowsOf(box)) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
}

function press(title) {
  const box = title.closest("[data-table]");
  const first = title.dataset.sorts === "down";
  const words = title.textContent.trim();
  const before = sorted.get(box.dataset.table);
  sorted.set(box.dataset.table, { words, down: before?.words === words ? !before.down : first });
  sort(box);
}

function within(row) {
  return [...row.querySelectorAll("a[href], button, input, summary")].filter((each) => each.checkVisibility());
}

/** From a part of a row to the same part of the row above or below; from a search into the rows. */
function move(event) {
  const target = event.target instanceof Element ? event.target : null;
  const steps = { ArrowDown: 1, ArrowUp: -1 };
  if (!target || !(event.key in steps) || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const field = target.matches("#main [role=search] [type=search]");
  const box = field ? document.querySelector("#main [data-table]") : target.closest("[data-table]");
  const typed = !field && target.matches("input:not([type=checkbox]), select, textarea");
  if (!box || typed || target.closest(".menu[open], .palette")) return;
  const rows = rowsOf(box).filter((row) => !row.hidden && within(row).length);
  const row = target.closest("tbody > tr, [data-row]");
  const next = rows[(row ? rows.indexOf(row) : -1) + steps[event.key]];
  if (!next) return;
  event.preventDefault();
  const parts = within(next);
  (parts[row ? within(row).indexOf(target) : 0] ?? parts[0]).focus();
}

function prepareAll() {
  for (const box of document.querySelectorAll("[data-table]")) prepare(box);
}

prepareAll();
document.addEventListener("htmx:afterSwap", prepareAll);
document.addEventListener("htmx:oobAfterSwap", prepareAll);
document.addEventListener("toggle", (event) => {
  if (event.target.matches?.("[data-columns][open]")) fill(event.target);
}, { capture: true });
document.addEventListener("click", (event) => {
  const title = event.target instanceof Element ? event.target.closest("[data-sorts]") : null;
  if (title && event.target.closest(".sort")) press(title);
});
document.addEventListener("input", (event) => {
  const name = event.target.closest?.("[data-filters]")?.dataset.filters;
  if (name) narrow(boxOf(name));
});
document.addEventListener("keydown", move);
