// Times in the visitor's own zone and manner; the server sends them in UTC. How long ago they
// were is part of a sentence, and so in the language of the page.

const looks = {
  moment: new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" }),
  stamp: new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" }),
  dayhour: new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" }),
  hour: new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" }),
  date: new Intl.DateTimeFormat(undefined, { dateStyle: "medium" }),
};
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
const relative = new Intl.RelativeTimeFormat(document.documentElement.lang, { numeric: "auto" });
const units = [["year", 31536000], ["month", 2592000], ["day", 86400], ["hour", 3600], ["minute", 60]];

function since(at) {
  const seconds = (at.getTime() - Date.now()) / 1000;
  for (const [unit, length] of units) {
    if (Math.abs(seconds) < length) continue;
    const count = seconds / length; // what expires in seven days says so, not "in 6 days"
    return relative.format(count > 0 ? Math.round(count) : Math.trunc(count), unit);
  }
  return relative.format(0, "minute");
}

export function showTimes(part) {
  for (const element of part.querySelectorAll("time[data-look]")) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const look = looks[element.dataset.look];
    const words = look ? look.format(at) : since(at);
    if (element.textContent !== words) element.textContent = words;
  }
  // What a chart tells where the pointer rests begins with a time.
  for (const told of part.querySelectorAll("title[data-at]")) {
    const at = looks.moment.format(new Date(told.dataset.at));
    told.textContent = told.textContent.replace(/^.* UTC/, at);
  }
}

/** The whole time of one is written when somebody points at it: a list has hundreds. */
document.addEventListener("pointerover", ({ target }) => {
  const element = target instanceof Element ? target.closest("time[data-look]:not([data-told])") : null;
  if (!element) return;
  element.dataset.told = "";
  element.title = full.format(new Date(element.dateTime));
});

showTimes(document);
document.addEventListener("htmx:afterSettle", (event) => showTimes(event.target));
