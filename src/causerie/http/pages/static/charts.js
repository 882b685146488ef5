// Charts answer: the values of a column by mouse, touch and arrow keys; a legend that shows one series alone; a click that
// leads to a column's own time. What is drawn comes from the service, and is read without a script.

const tip = () => import("./tip.js"); // once somebody points at a column
const SHOWN = 9; // rows of values; a column can have a few more

function element(name, text, className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

/** What a column says, as rows: its words are lines of a name and a value, sorted by the service. */
function rows(figure, words) {
  const [heading, ...lines] = words.split("\n").map((line) => line.trim()).filter(Boolean);
  const list = document.createElement("dl");
  for (const line of lines.slice(0, SHOWN)) {
    const at = line.lastIndexOf(": ");
    const [name, value] = [line.slice(0, at), line.slice(at + 2)];
    const mark = figure.querySelector(`.legend [data-name="${CSS.escape(name)}"] svg`);
    const title = element("dt", "");
    if (mark) title.append(mark.cloneNode(true));
    title.append(element("span", name, "cut"));
    list.append(title, element("dd", value));
  }
  return [element("strong", heading), list];
}

function prepare(figure) {
  const box = figure.querySelector(".chart-box");
  const columns = [...box.querySelectorAll(".chart-column")];
  if (!columns.length) return;
  figure.dataset.answers = "";
  const said = element("p", "", "unseen");
  said.setAttribute("aria-live", "polite");
  figure.append(said);
  let here = -1;
  for (const column of columns) {
    const title = column.querySelector("title");
    column.dataset.words = title.textContent;
    title.remove(); // the browser's own box would come a second later
  }

  function show(at, { speak = false } = {}) {
    columns[here]?.removeAttribute("data-here");
    here = at;
    const column = columns[at];
    if (!column) {
      tip().then(({ hideTip }) => hideTip(box));
      return;
    }
    column.dataset.here = "";
    const { left, top, width } = box.getBoundingClientRect();
    const middle = left + ((at + 0.5) * width) / columns.length;
    tip().then(({ showTip }) => showTip(box, middle, Math.max(top, 8), ...rows(figure, column.dataset.words)));
    if (speak) said.textContent = column.dataset.words.replace(/\s*\n\s*/g, ", ");
  }

  box.tabIndex = 0;
  box.addEventListener("pointermove", ({ clientX }) => {
    const { left, width } = box.getBoundingClientRect();
    const at = Math.min(columns.length - 1, Math.max(0, Math.floor(((clientX - left) / width) * columns.length)));
    if (at !== here) show(at);
  });
  box.addEventListener("pointerdown", (event) => { if (event.pointerType !== "mouse") box.dispatchEvent(new PointerEvent("pointermove", event)); });
  box.addEventListener("pointerleave", ({ pointerType }) => { if (pointerType === "mouse") show(-1); });
  box.addEventListener("focus", () => { if (box.matches(":focus-visible")) show(columns.length - 1, { speak: true }); });
  box.addEventListener("blur", () => show(-1));
  box.addEventListener("keydown", (event) => {
    const to = { ArrowRight: Math.min(here + 1, columns.length - 1), ArrowLeft: here < 0 ? columns.length - 1 : Math.max(here - 1, 0), Home: 0, End: columns.length - 1 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      show(to, { speak: true });
    } else if (event.key === "Enter") narrow(columns[here]);
  });
  box.addEventListener("click", (event) => {
    if (event.detail && !matchMedia("(hover: none)").matches) narrow(columns[here]); // a tap shows values only
  });
  prepareLegend(figure, columns);
}

function narrow(column) {
  if (column?.dataset.href) location.href = column.dataset.href;
}

/** A series alone: the others are pale, and its bars stand on the ground. */
function isolate(figure, columns, colour) {
  figure.toggleAttribute("data-alone", colour !== null);
  for (const part of figure.querySelectorAll("[data-colour]")) part.toggleAttribute("data-alone", part.dataset.colour === colour);
  for (const bar of columns.flatMap((each) => [...each.querySelectorAll("rect[data-colour]")])) {
    bar.dataset.y ??= bar.getAttribute("y");
    bar.setAttribute("y", bar.dataset.colour === colour ? 100 - bar.getAttribute("height") : bar.dataset.y);
  }
}

function prepareLegend(figure, columns) {
  let held = null;
  for (const entry of figure.querySelectorAll(".legend li[data-colour]")) {
    const { colour } = entry.dataset;
    const button = element("button", "");
    button.type = "button";
    button.setAttribute("aria-pressed", "false");
    button.append(...entry.childNodes);
    entry.append(button);
    button.addEventListener("pointerenter", () => isolate(figure, columns, colour));
    button.addEventListener("pointerleave", () => isolate(figure, columns, held));
    button.addEventListener("click", () => {
      held = held === colour ? null : colour;
      for (const each of figure.querySelectorAll(".legend button")) each.setAttribute("aria-pressed", String(each === button && held !== null));
      isolate(figure, columns, held);
    });
  }
}

function prepareAll() {
  for (const figure of document.querySelectorAll("figure.chart:not([data-answers])")) prepare(figure);
}

prepareAll();
document.addEventListener("htmx:afterSettle", prepareAll);
