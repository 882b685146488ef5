// Runs before anything is painted, and stands before the style sheets, for which a later script, and
// with it the rest of the page, would wait: a chosen theme and hidden columns do not flash.
// table.js keeps the names of hidden columns, and an event of the document says that they have changed.
"use strict";
(() => {
  let kept = null;
  try { kept = localStorage.getItem("theme"); } catch { /* no storage: as the system is */ }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
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
(() => {
  // A message that is sent before the scripts of a chat are there is sent once they are.
  let early = null;
  function keep(event) {
    if (document.readyState === "complete" || event.defaultPrevented) return;
    const form = event.target.form ?? event.target;
    if (form.id !== "composer") return;
    event.preventDefault();
    early = form;
  }
  document.addEventListener("submit", keep);
  document.addEventListener("keydown", (event) => {
    if (event.target.id === "draft" && event.key === "Enter" && !event.shiftKey && !event.isComposing) keep(event);
  });
  addEventListener("load", () => early?.requestSubmit());
})();
