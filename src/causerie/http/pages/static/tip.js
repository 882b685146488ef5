// One box of words beside what somebody points at or has in focus: text that was cut, and values of charts.

const box = document.createElement("div");
box.className = "tip";
box.id = "tip";
box.setAttribute("role", "tooltip");
box.hidden = true;
let holder = null; // what the box is about

/** Show these nodes beside a point of the window. */
export function showTip(about, x, y, ...nodes) {
  holder = about;
  const place = document.querySelector("dialog[open]") ?? document.querySelector("main") ?? document.body; // a dialog covers all else
  if (box.parentElement !== place) place.append(box);
  box.replaceChildren(...nodes);
  box.hidden = false;
  const { offsetWidth, offsetHeight } = box;
  const left = Math.min(Math.max(8, x + 12), innerWidth - offsetWidth - 8);
  const below = y + 16 + offsetHeight < innerHeight;
  box.style.left = `${left}px`;
  box.style.top = `${Math.max(8, below ? y + 16 : y - offsetHeight - 12)}px`;
}

export function hideTip(about = holder) {
  if (about !== holder) return;
  holder = null;
  box.hidden = true;
}

/** The text with an ellipsis at or around an element, if there is one. */
function cutText(target) {
  if (!(target instanceof Element)) return null;
  const inside = target.closest(".cut, th, td") ?? target.querySelector(".cut");
  const found = inside?.matches(".cut") ? inside : inside?.querySelector(".cut") ?? inside;
  return found && found.scrollWidth > found.clientWidth + 1 && getComputedStyle(found).textOverflow === "ellipsis" ? found : null;
}

/** Show all of a text that somebody points at, or has in focus, if it was cut. */
export function tell({ target, type }) {
  const cut = cutText(target);
  if (!cut || cut === holder || (type === "focusin" && !target.matches(":focus-visible"))) return;
  if (cut.title) {
    cut.dataset.whole = cut.title; // the browser's own box would come later, over this one
    cut.removeAttribute("title");
  }
  const { left, bottom } = cut.getBoundingClientRect();
  showTip(cut, left - 12, bottom - 10, cut.dataset.whole ?? cut.textContent.trim());
}

document.addEventListener("pointerover", tell);
document.addEventListener("focusin", tell);
document.addEventListener("pointerout", ({ target }) => { if (holder?.matches?.(".cut, th, td") && holder.contains(target)) hideTip(); });
document.addEventListener("focusout", () => hideTip());
document.addEventListener("keydown", ({ key }) => { if (key === "Escape") hideTip(); });
addEventListener("scroll", () => hideTip(), { capture: true, passive: true });
