// Filters of a narrow window: the form of the page, shown in the dialog, and put back when that closes.
// Where filters act as they are typed (`data-follows`) the address follows; a live page waits for who reads.

const dialog = document.getElementById("dialog");
const inside = document.getElementById("dialog-content");
let open = null; // the button that opened them, the form, and its place on the page

document.addEventListener("click", (event) => {
  const button = event.target instanceof Element ? event.target.closest("[data-filters-open]") : null;
  if (!button) return;
  const place = button.closest(".filtering").querySelector(".filtering-place");
  open = { button, place, form: place.firstElementChild };
  inside.replaceChildren(open.form);
  dialog.setAttribute("aria-label", "Filters");
  dialog.classList.add("dialog-sheet");
  dialog.showModal();
});

dialog?.addEventListener("close", () => {
  if (!open) return;
  open.place.append(open.form);
  dialog.classList.remove("dialog-sheet");
  open.button.focus();
  open = null;
});

document.addEventListener("submit", (event) => {
  if (dialog?.open && event.target === open?.form && event.target.matches("[data-follows]")) dialog.close();
});

document.addEventListener("htmx:afterRequest", ({ detail }) => {
  if (!detail.successful || !detail.elt.matches("[data-follows]")) return;
  const fields = [...new FormData(detail.elt)].filter(([, value]) => value !== "");
  history.replaceState(history.state, "", `?${new URLSearchParams(fields)}`);
});

/** Nobody looks, or somebody reads a request: it would close. */
function isBusy() {
  return document.hidden || document.querySelector("#found :is([data-row][open], :focus)") !== null;
}

document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.detail.elt.matches("[data-live]") && isBusy()) event.preventDefault();
});
