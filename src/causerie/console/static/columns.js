// Runs before anything is painted, so that columns that somebody hid do not flash. table.js keeps
// their names; an event of the document says that they have changed.
"use strict";
(() => {
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  function kept() {
    try { return Object.entries(JSON.parse(localStorage.getItem("columns")) ?? {}); } catch { return []; }
  }
  function apply() {
    const rules = kept().flatMap(([table, labels]) => (Array.isArray(labels) ? labels : []).map((label) => (
      `[data-table=${CSS.escape(table)}] [data-label=${CSS.escape(String(label))}] { display: none !important; }`)));
    sheet.replaceSync(rules.join("\n"));
  }
  apply();
  document.addEventListener("columns", apply);
})();
