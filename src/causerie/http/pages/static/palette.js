// The command palette: Ctrl-K, ⌘K or ? opens it in the dialog; arrows move, Enter goes, with Shift into the playground; / searches a list.

const opener = document.querySelector("[data-palette]");

// The library that swaps parts comes at first use to pages that need it for nothing else.
let library = null;
opener?.addEventListener("click", (event) => {
  const elsewhere = event.ctrlKey || event.metaKey || event.shiftKey;
  if (window.htmx || library || elsewhere || document.readyState !== "complete") return; // or a page of its own
  event.preventDefault();
  library = import("./htmx.js").then(() => opener.click());
});

function typing(element) {
  return element instanceof HTMLElement && (element.isContentEditable || element.matches("input:not([type=checkbox], [type=radio]), textarea, select"));
}

/** On pages for strangers both keys lead to the search for models. */
function findModels() {
  const field = document.querySelector("#main [role=search] [type=search]");
  if (field) field.focus();
  else document.querySelector(".open-nav a")?.click();
}

/** Go where a link leads, with Shift into the playground. */
function follow(link, shifted) {
  if (shifted && link?.dataset.shifted) location.assign(link.dataset.shifted);
  else link?.click();
}

/** Take the first that is found; where letters were just typed, once they have been answered. */
function takeFirst(panel, field, shifted) {
  const take = () => follow(panel.querySelector("#palette-found :is(a, button)"), shifted);
  if (panel.querySelector("#palette-found").dataset.find === field.value) take();
  else document.addEventListener("htmx:afterSettle", take, { once: true });
}

/** From the field into the list, and round; Enter in the field takes the first. */
function move(event, panel) {
  const field = panel.querySelector("#palette-find");
  const ring = [field, ...panel.querySelectorAll("#palette-found :is(a, button)")];
  const at = ring.indexOf(document.activeElement);
  if (event.key === "Enter" && document.activeElement === field) {
    event.preventDefault();
    takeFirst(panel, field, event.shiftKey);
  } else if (event.key === "Enter" && event.shiftKey && at > 0) {
    event.preventDefault();
    follow(document.activeElement, true);
  }
  if (event.key === "Escape") { // it would empty the field first
    event.preventDefault();
    panel.closest("dialog")?.close();
  }
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  event.preventDefault();
  ring.at((at + (event.key === "ArrowDown" ? 1 : -1)) % ring.length).focus();
}

document.addEventListener("keydown", (event) => {
  const panel = document.querySelector("dialog[open] .palette, #main .palette");
  const asked = event.key === "?" && opener && !typing(event.target) && !panel;
  if (asked || (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey)) {
    event.preventDefault();
    if (document.querySelector("dialog[open]")) return;
    if (opener) opener.click();
    else findModels();
  } else if (event.key === "/" && !typing(event.target) && !document.querySelector("dialog[open]")) {
    const field = document.querySelector("#main [role=search] [type=search]");
    if (!field && opener) return;
    event.preventDefault();
    if (field) field.focus();
    else findModels();
  } else if (panel) move(event, panel);
});
