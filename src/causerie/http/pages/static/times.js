// Times in the zone that the profile names, or the visitor's own; the server sends them in UTC. How long ago they
// were it says itself. They are written as the server writes them, in the language of the page: 29 Nov 2026, 14:05.

const LOOKS = {
  moment: { dateStyle: "medium", timeStyle: "short" },
  stamp: { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" },
  dayhour: { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" },
  hour: { hour: "2-digit", minute: "2-digit" },
  date: { dateStyle: "medium" },
  full: { dateStyle: "full", timeStyle: "long" },
};
const formats = new Map(); // each is made when the first time of its look is shown: it is slow

function words(look, at) {
  if (!formats.has(look)) formats.set(look, format(LOOKS[look]));
  return formats.get(look).format(at);
}

/** The profile keeps the zone; without one, or with one that this browser does not know, its own. */
function format(look) {
  try {
    return new Intl.DateTimeFormat("en-GB", { ...look, timeZone: localStorage.getItem("zone") || undefined });
  } catch {
    return new Intl.DateTimeFormat("en-GB", look);
  }
}

export function showTimes(part) {
  for (const element of part.querySelectorAll("time[data-look]:not([data-look=ago])")) {
    const at = new Date(element.dateTime);
    if (!Number.isNaN(at.getTime())) element.textContent = words(element.dataset.look, at);
  }
  // What a chart tells where the pointer rests begins with a time.
  for (const told of part.querySelectorAll("title[data-at]")) {
    const at = words("moment", new Date(told.dataset.at));
    told.textContent = told.textContent.replace(/^.* UTC/, at);
  }
}

/** The whole time of one is written when somebody points at it: a list has hundreds. */
document.addEventListener("pointerover", ({ target }) => {
  const element = target instanceof Element ? target.closest("time[data-look]:not([data-told])") : null;
  if (!element) return;
  element.dataset.told = "";
  element.title = words("full", new Date(element.dateTime));
});

showTimes(document);
document.addEventListener("htmx:afterSettle", (event) => showTimes(event.target));
