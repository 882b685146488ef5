// Scripts of every page: theme, menus, navigation on narrow screens, notices that go by themselves, and
// the parts that come when they are first needed.

const root = document.documentElement;
const systemDark = matchMedia("(prefers-color-scheme: dark)");

function dark() {
  return root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches;
}

// The tab of this page is in sight where a narrow window has no room for all.
for (const tab of document.querySelectorAll("nav.tab-list [aria-current]"))
  tab.parentElement.scrollLeft = tab.offsetLeft - tab.parentElement.offsetLeft - 40;

const sidebar = document.querySelector(".sidebar");
const sheetSwitch = document.querySelector("[data-nav-switch]");

/** Open or close the menu of a narrow screen; the keyboard goes along. */
function showSheet(open) {
  sidebar.toggleAttribute("data-open", open);
  sheetSwitch.setAttribute("aria-expanded", String(open));
  if (open) sidebar.querySelector(".sheet :is(summary, a, button)")?.focus();
  else sheetSwitch.focus();
}

/** On a wide screen the same part stands beside the page. */
function sheetCovers() {
  return Boolean(sidebar?.hasAttribute("data-open") && sheetSwitch?.checkVisibility());
}

/** From the last part of the open sheet Tab leads to its button, from there into the sheet. */
function keepInSheet(event) {
  const all = [...sidebar.querySelectorAll(".sheet :is(summary, a, button, input)")].filter((each) => each.checkVisibility());
  const ring = [sheetSwitch, ...all];
  const next = ring.at((ring.indexOf(document.activeElement) + (event.shiftKey ? -1 : 1)) % ring.length);
  event.preventDefault();
  next.focus();
}

document.addEventListener("click", (event) => {
  const target = event.target instanceof Element ? event.target : null;
  if (!target) return;
  if (target.closest("[data-theme-switch]")) {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* for this page only */ }
  }
  if (target.closest("[data-nav-switch]")) showSheet(!sidebar.hasAttribute("data-open"));
  else if (sheetCovers() && !target.closest(".sheet")) showSheet(false); // on the veil
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(target) || target.closest(".menu-list a, .menu-list button")) menu.open = false;
  }
  target.closest("[data-toast-close]")?.closest(".toast")?.remove();
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Tab" && sheetCovers()) keepInSheet(event);
  if (event.key !== "Escape") return;
  const menu = document.activeElement?.closest("details.menu[open]");
  if (menu) {
    menu.open = false;
    menu.querySelector("summary").focus();
  } else if (sheetCovers()) showSheet(false);
});

// A form that is on its way shows it, and is not sent twice. Those of dialogs are htmx's own.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (event.defaultPrevented || form.method !== "post") return;
  if (form.getAttribute("aria-busy") === "true") event.preventDefault();
  form.setAttribute("aria-busy", "true");
  setTimeout(() => form.removeAttribute("aria-busy"), 10000); // it was stopped on the way
});
addEventListener("pageshow", () => { // also a page that the way back brings up again
  for (const form of document.querySelectorAll("form[aria-busy]")) form.removeAttribute("aria-busy");
});

const SLOW = 400; // milliseconds after which a page that is on its way is announced
const GIVEN_UP = 15000; // by then what was asked for was a file, or nothing

/** The shape of the next page, where that takes long: it may wait for a provider. */
function showSkeleton() {
  const page = document.querySelector("#main > .page");
  if (!page || page.dataset.waits !== undefined) return;
  const shape = document.createElement("div");
  shape.className = "skeleton-page";
  shape.setAttribute("role", "status");
  shape.setAttribute("aria-label", "The page is loading");
  for (let part = 0; part < 3; part += 1) {
    const bar = document.createElement("span");
    bar.className = "skeleton";
    shape.append(bar);
  }
  page.append(shape);
  page.dataset.waits = "";
  scrollTo(0, 0);
  setTimeout(hideSkeleton, GIVEN_UP);
}

function hideSkeleton() {
  document.querySelector(".skeleton-page")?.remove();
  document.querySelector(".page[data-waits]")?.removeAttribute("data-waits");
}

document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const to = new URL(link.href, location.href);
  const same = to.pathname === location.pathname && to.search === location.search;
  if (link.matches("[download], [target], [hx-get], [data-opens]") || to.origin !== location.origin || same) return;
  setTimeout(showSkeleton, SLOW);
});
addEventListener("pageshow", hideSkeleton);

for (const toast of document.querySelectorAll(".toast")) {
  setTimeout(() => toast.remove(), 6000);
}

// Pages of no project, as those of operators, lead back to the one that was open last.
const project = location.pathname.match(/^(\/[^/]+)\/projects\/([^/]+)/);
if (project) {
  const secure = location.protocol === "https:" ? "; secure" : "";
  document.cookie = `causerie-project=${project[2]}; path=${project[1]}/; max-age=31536000; samesite=lax${secure}`;
}

// The notice of an address is said once: reloading the page does not say it again.
const here = new URL(location.href);
if (here.searchParams.has("done")) {
  here.searchParams.delete("done");
  history.replaceState(history.state, "", here);
}

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

// What few visits need comes with the first click that it is for.
const LATER = { "[data-copy]": () => import("./copy.js"), "[data-run-send]": () => import("./run.js") };

document.addEventListener("click", async (event) => {
  if (!(event.target instanceof Element)) return;
  for (const [selector, load] of Object.entries(LATER)) {
    const pressed = event.target.closest(selector);
    if (pressed) (await load()).press(pressed);
  }
});
