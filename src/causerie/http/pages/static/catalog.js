// The catalog: keeps the address in step with the search, and what was chosen to be compared.

const finder = document.getElementById("finder");
const KEPT = "compare";

function wanted() {
  const fields = [...new FormData(finder)].filter(([, value]) => value !== "");
  const [usual] = finder.elements.sort.options;
  return new URLSearchParams(fields.filter(([name, value]) => name !== "sort" || value !== usual.value));
}

document.addEventListener("htmx:afterSwap", (event) => {
  if (!finder || event.detail.target.id !== "results") return;
  const query = wanted().toString();
  history.replaceState(history.state, "", query ? `?${query}` : location.pathname);
  const summary = finder.querySelector(".filter-menu > summary");
  const chosen = finder.querySelectorAll("[name=parameter]:checked").length;
  summary.querySelector(".badge")?.remove();
  if (!chosen) return;
  const badge = document.createElement("span");
  badge.className = "badge badge-accent";
  badge.textContent = String(chosen);
  summary.append(" ", badge);
});

function chosen() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "[]");
    return Array.isArray(kept) ? kept.filter((each) => typeof each === "string") : [];
  } catch {
    return [];
  }
}

function keep(models) {
  try { sessionStorage.setItem(KEPT, JSON.stringify(models)); } catch { /* for this list only */ }
}

/** Tick what was chosen, also on other pages of the list; those that are not here go along. */
function show() {
  const form = document.querySelector("[data-choose]");
  const bar = form?.querySelector(".compare-bar"); // only the public catalog compares
  if (!bar) return;
  const models = chosen();
  const most = Number(form.dataset.choose);
  const boxes = [...form.querySelectorAll("input[type=checkbox]")];
  for (const box of boxes) {
    box.checked = models.includes(box.value);
    box.disabled = !box.checked && models.length >= most;
  }
  for (const old of form.querySelectorAll("input[type=hidden]")) old.remove();
  for (const each of models.filter((model) => !boxes.some((box) => box.value === model))) {
    const field = document.createElement("input");
    field.type = "hidden";
    field.name = "model";
    field.value = each;
    form.append(field);
  }
  bar.toggleAttribute("data-chosen", models.length > 0);
  bar.querySelector(".button-main").disabled = models.length < 2;
  bar.querySelector("[data-choose-clear]").hidden = models.length === 0;
  const said = models.length < 2 ? "Choose at least one more." : `${models.length} of at most ${most} models chosen.`;
  bar.querySelector("[data-choose-said]").textContent = said;
}

document.addEventListener("change", (event) => {
  const box = event.target instanceof Element ? event.target.closest("[data-choose] input[type=checkbox]") : null;
  if (!box) return;
  const others = chosen().filter((each) => each !== box.value);
  keep(box.checked ? [...others, box.value] : others);
  show();
});

document.addEventListener("click", (event) => {
  const target = event.target instanceof Element ? event.target : null;
  if (target?.closest("[data-choose-clear]")) {
    keep([]);
    show();
  }
  const add = target?.closest("[data-choose-add]");
  if (!add) return;
  const models = chosen().filter((each) => each !== add.dataset.chooseAdd);
  keep([...models, add.dataset.chooseAdd].slice(-4));
  if (models.length === 0) return;
  event.preventDefault();
  location.assign(`${add.pathname}?${new URLSearchParams(chosen().map((each) => ["model", each]))}`);
});

document.addEventListener("htmx:afterSettle", show);
addEventListener("pageshow", show);
