// Notices that a script gives, in the place of those of the service.

const SECONDS = 8;

/** Say something; with `undo`, a button takes back what was done. */
export function toast(words, undo = null) {
  const note = document.createElement("div");
  note.className = "toast";
  const text = document.createElement("span");
  text.textContent = words;
  note.append(text);
  if (undo) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button button-small";
    button.textContent = "Undo";
    button.addEventListener("click", () => {
      note.remove();
      undo();
    });
    note.append(button);
  }
  document.querySelector(".toasts").append(note);
  setTimeout(() => note.remove(), SECONDS * 1000);
}
