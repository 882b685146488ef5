// How pages look in this browser: the theme, and the zone of times. first.js and times.js read what is kept here.

const display = document.getElementById("display");
const zone = document.getElementById("zone");

function kept(name) {
  try { return localStorage.getItem(name) ?? ""; } catch { return ""; }
}

function keep(name, value) {
  try {
    if (value) localStorage.setItem(name, value);
    else localStorage.removeItem(name);
  } catch { /* for this page only */ }
}

const theme = display.querySelector(`[name=theme][value="${CSS.escape(kept("theme"))}"]`);
if (theme) theme.checked = true;
for (const each of Intl.supportedValuesOf("timeZone")) if (each !== "UTC") zone.add(new Option(each, each));
zone.value = kept("zone");

display.addEventListener("change", ({ target }) => {
  keep(target.name, target.value);
  if (target.name === "zone") location.reload(); // all times of the page
  else if (target.value) document.documentElement.dataset.theme = target.value;
  else delete document.documentElement.dataset.theme;
});
