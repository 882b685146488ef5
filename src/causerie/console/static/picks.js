// Selects of a page that are searched where their options are many.

import { Picker } from "./picker.js";

for (const select of document.querySelectorAll("select[data-picks]")) new Picker(select);
