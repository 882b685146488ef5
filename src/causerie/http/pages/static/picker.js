// A select with many options is a button here: it opens a dialog with a search and the list.

const FEW = 8; // so many are found by looking
const DRAWN = 100; // so many are listed at once; the search finds the others
const PAGE = 8;

const dialog = document.getElementById("picker") ?? taken();
const find = document.getElementById("picker-find");
const list = document.getElementById("picker-list");
const count = document.getElementById("picker-count");
let current = null; // the Picker whose options are listed
let unnamed = 0; // selects of rows, which have no id of their own
let active = -1; // place of the option that Enter takes

/** The list of a form that may be in a dialog: it is taken out of its template, and stays for the next form. */
function taken() {
  const made = document.getElementById("picker-kept")?.content.querySelector("dialog") ?? null;
  if (made) document.body.append(made);
  return made;
}

/** Options with all of the words. First come those that begin with what was typed; of nothing, the chosen one. */
export function matching(options, typed) {
  const wanted = typed.trim().toLowerCase();
  const words = wanted.split(/\s+/);
  const found = options.filter(({ text }) => words.every((word) => text.toLowerCase().includes(word)));
  const first = ({ text, selected }) => (wanted ? text.toLowerCase().startsWith(wanted) : selected);
  return [...found.filter(first), ...found.filter((each) => !first(each))];
}

/** The context of a model and what a million tokens cost, as its option says. */
function terms({ context, price }) {
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  const [input, output] = (price ?? "").split(" ").map(Number);
  const dollars = (amount) => `$${Number(amount.toPrecision(3))}`;
  const costs = price ? [input || output ? `${dollars(input)} input, ${dollars(output)} output per 1M` : "free"] : [];
  return [...(context ? [`${short.format(context)} context`] : []), ...costs];
}

function row(option, nth) {
  const item = document.createElement("li");
  item.id = `picker-${nth}`;
  item.setAttribute("role", "option");
  item.dataset.value = option.value;
  item.toggleAttribute("data-chosen", option.selected);
  const name = document.createElement("span");
  name.textContent = option.text;
  const words = document.createElement("span");
  words.className = "small quiet";
  const said = [option.selected ? "chosen" : "", ...terms(option.dataset), option.dataset.abilities];
  words.textContent = said.filter(Boolean).join(" · ");
  item.append(name, words);
  return item;
}

function point(nth) {
  list.children[active]?.setAttribute("aria-selected", "false");
  active = nth;
  const item = list.children[active];
  find.toggleAttribute("aria-activedescendant", Boolean(item));
  if (!item) return;
  item.setAttribute("aria-selected", "true");
  find.setAttribute("aria-activedescendant", item.id);
  item.scrollIntoView({ block: "nearest" });
}

function fill() {
  const options = [...current.select.options];
  const found = matching(options, find.value);
  list.replaceChildren(...found.slice(0, DRAWN).map(row));
  const more = found.length > DRAWN ? `, of which ${DRAWN} are listed: type more of the name` : "";
  count.textContent = found.length === 0 ? `No ${current.what} has this in its name` : `${found.length} of ${options.length}${more}`;
  active = -1;
  point(0);
}

function take(item) {
  if (!item) return;
  const { select } = current;
  dialog.close();
  if (select.value === item.dataset.value) return;
  select.value = item.dataset.value;
  for (const kind of ["input", "change"]) select.dispatchEvent(new Event(kind, { bubbles: true }));
}

function press(event) {
  const last = list.children.length - 1;
  const steps = { ArrowDown: active === last ? 0 : active + 1, ArrowUp: active <= 0 ? last : active - 1, PageDown: Math.min(active + PAGE, last), PageUp: Math.max(active - PAGE, 0) };
  if (event.isComposing) return;
  if (event.key in steps) point(steps[event.key]);
  else if (event.key === "Enter") take(list.children[active]);
  else return;
  event.preventDefault();
}

export class Picker {
  constructor(select) {
    this.select = select;
    this.what = select.dataset.picks ?? "model";
    select.id ||= `picked-${unnamed += 1}`;
    const around = select.closest("label");
    this.label = around ?? document.querySelector(`label[for="${select.id}"]`);
    this.title = (around?.firstChild ?? this.label).textContent.trim();
    this.button = document.createElement("button");
    Object.assign(this.button, { type: "button", id: `${select.id}-picker`, className: "input picker-button cut" });
    this.button.setAttribute("aria-haspopup", "dialog");
    this.button.addEventListener("click", () => this.open());
    this.button.addEventListener("keydown", (event) => this.begin(event));
    select.after(this.button);
    select.addEventListener("change", () => this.show());
    this.show();
  }

  /** Show what is chosen, in the select where its options are few. */
  show() {
    const many = this.select.options.length > FEW;
    this.select.hidden = many;
    this.button.hidden = !many;
    this.label.htmlFor = many ? this.button.id : this.select.id;
    const chosen = this.select.selectedOptions[0]?.text ?? "";
    this.button.textContent = this.button.title = chosen;
    this.button.setAttribute("aria-label", `${this.title}: ${chosen}`);
  }

  /** Open the list for an arrow, as a select does, and for a letter, which the search gets. */
  begin(event) {
    const letter = event.key.length === 1 && event.key !== " " && !event.ctrlKey && !event.metaKey && !event.altKey;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") event.preventDefault();
    else if (!letter) return;
    this.open();
  }

  open(typed = "") {
    current = this;
    find.value = typed;
    find.placeholder = `Find a ${this.what}`;
    find.setAttribute("aria-label", find.placeholder);
    list.setAttribute("aria-label", this.title);
    dialog.setAttribute("aria-label", `Choose a ${this.what}`);
    const place = this.button.getBoundingClientRect();
    dialog.style.setProperty("--left", `${Math.max(8, Math.min(place.left, innerWidth - 432))}px`);
    dialog.style.setProperty("--top", `${place.bottom + 4}px`);
    dialog.showModal();
    find.focus();
    fill();
  }
}

find?.addEventListener("input", fill);
find?.addEventListener("keydown", press);
list?.addEventListener("click", (event) => take(event.target.closest("[role=option]")));
dialog?.addEventListener("click", (event) => {
  if (event.target === dialog || event.target.closest("[data-close]")) dialog.close();
});

/** Make a select searched that was used for the first time, and begin its search with what was typed. */
export function pick(select, typed) {
  if (select.dataset.picked !== undefined) return; // a second key came before the script
  select.dataset.picked = "";
  const picker = new Picker(select);
  picker.button.focus(); // where the keyboard is again when the list closes
  picker.open(typed);
}
