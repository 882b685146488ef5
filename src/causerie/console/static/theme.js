// Runs before anything is painted, so that a chosen theme does not flash.
"use strict";
(() => {
  let kept = null;
  try { kept = localStorage.getItem("theme"); } catch { /* no storage: as the system is */ }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
