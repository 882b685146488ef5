// Selects of a page that are searched where their options are many.

import { Picker } from "./picker.js";

const dialog = document.getElementById("picker");
// The list of a form that came into a dialog stays when the form goes: the next one has it too.
if (dialog?.closest("dialog:not(#picker)")) document.body.append(dialog);

export function pickAll(part) {
  for (const other of document.querySelectorAll("dialog.picker")) if (other !== dialog) other.remove();
  for (const select of part.querySelectorAll("select[data-picks]:not([data-picked])")) {
    select.dataset.picked = "";
    new Picker(select);
  }
}

pickAll(document);
