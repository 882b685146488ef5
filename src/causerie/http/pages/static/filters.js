// Filters of a narrow window: the form of the page, shown in the dialog, and put back when that closes.

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
