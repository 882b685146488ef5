// Selects of a page that are searched where their options are many.

import { Picker } from "./picker.js";

export function pickAll(part) {
  for (const select of part.querySelectorAll("select[data-picks]:not([data-picked])")) {
    select.dataset.picked = "";
    new Picker(select);
  }
}

pickAll(document);
