// Scripts of every page.

import "./frame.js";
import "./copy.js";

// Charts are on some pages, and some come later.
function findCharts() {
  if (document.querySelector("figure.chart")) import("./charts.js");
}

// Text that was cut is on some pages; the whole of it is told once somebody points at one.
let tips = false;

function findCut(event) {
  if (tips || !(event.target instanceof Element) || !event.target.closest(".cut, th, td")) return;
  tips = true;
  import("./tip.js").then(({ tell }) => tell(event));
}

document.addEventListener("pointerover", findCut);
document.addEventListener("focusin", findCut);

findCharts();
document.addEventListener("htmx:afterSettle", findCharts);
