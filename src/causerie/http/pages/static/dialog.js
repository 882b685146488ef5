// Pages that htmx fetches into the dialog are shown as one; without scripts they are pages.

const dialog = document.getElementById("dialog");
const inside = document.getElementById("dialog-content");
let again = false; // whether something was made, so that the page behind is out of date
let opener = null; // where the keyboard was, and goes back to

/** Fetch the page of a link, or the answer to the form of a button, into the dialog. */
function fetchInto(opening) {
  const sends = opening.matches("button");
  window.htmx.ajax(sends ? "POST" : "GET", opening.getAttribute(sends ? "formaction" : "href"), {
    source: opening, target: inside, select: "#panel",
  });
}

document.addEventListener("click", (event) => {
  const opening = event.target instanceof Element ? event.target.closest("[data-opens]") : null;
  const elsewhere = event.button || event.ctrlKey || event.metaKey || event.shiftKey;
  if (!opening || !window.htmx || elsewhere || event.defaultPrevented) return;
  event.preventDefault();
  fetchInto(opening);
});

document.addEventListener("htmx:afterSwap", (event) => {
  if (!dialog || !(event.detail.target === inside || inside.contains(event.target))) return;
  if (!dialog.open) {
    opener = event.detail.requestConfig?.elt;
    dialog.showModal();
  }
  again = again || inside.querySelector("[data-made]") !== null;
  const panel = inside.querySelector("#panel");
  dialog.setAttribute("aria-label", panel?.querySelector("h1")?.textContent ?? "Dialog");
  panel?.setAttribute("tabindex", "-1");
  (inside.querySelector("[aria-invalid=true]") ?? inside.querySelector("[autofocus]") ?? panel)?.focus();
});

dialog?.addEventListener("close", () => {
  inside.replaceChildren(); // a secret that was shown is gone
  (opener?.closest("details.menu")?.querySelector("summary") ?? opener)?.focus();
  if (again) location.reload();
});

document.addEventListener("click", (event) => {
  const target = event.target instanceof Element ? event.target : null;
  if (!dialog || !target) return;
  if (target.closest("[data-dialog-close]") && dialog.contains(target)) {
    event.preventDefault();
    dialog.close();
  }
});

/** Below, or in the dialog, which covers what is below. */
function say(text) {
  if ([...document.querySelectorAll("[data-told]")].some((each) => each.textContent === text)) return; // it says so still
  const told = document.createElement("div");
  told.textContent = text;
  told.setAttribute("role", "alert");
  told.dataset.told = "";
  const buttons = dialog?.open ? inside.querySelector("form > .buttons-end") : null;
  told.className = buttons ? "note note-bad" : "toast";
  if (buttons) buttons.before(told);
  else document.querySelector(".toasts")?.append(told);
  setTimeout(() => told.remove(), 6000);
}

for (const kind of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(kind, (event) => {
    const polls = event.detail.elt?.getAttribute("hx-trigger")?.startsWith("every"); // nobody pressed anything
    say(polls ? "The service does not answer. The figures on this page are old." : "That did not work: the service does not answer. Try again.");
  });
}
