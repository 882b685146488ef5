// Scripts of every page.

import "./frame.js";
import "./copy.js";
import "./tip.js";

// Charts are on some pages, and some come later.
function findCharts() {
  if (document.querySelector("figure.chart")) import("./charts.js");
}

findCharts();
document.addEventListener("htmx:afterSettle", findCharts);
