// Rows to pick from: narrowed down while somebody types, picked all at once.

const rows = [...document.querySelectorAll("[data-pick]")];
const all = document.querySelector("[data-pick-all]");
const find = document.querySelector("[data-pick-filter] input");
const told = document.querySelector("[data-picked]");

function shown() {
  return rows.filter((row) => !row.hidden).map((row) => row.querySelector("input")).filter((box) => !box.disabled);
}

function follow() {
  const boxes = shown();
  const picked = boxes.filter((box) => box.checked).length;
  all.checked = picked > 0 && picked === boxes.length;
  all.indeterminate = picked > 0 && picked < boxes.length;
  all.disabled = boxes.length === 0;
  const every = rows.filter((row) => row.querySelector("input").checked).length;
  told.textContent = every ? `${every} picked` : "Nothing picked";
}

if (all) {
  all.dataset.pickAll = "works";
  all.setAttribute("aria-label", "All models shown");
  all.addEventListener("change", () => { for (const box of shown()) box.checked = all.checked; follow(); });
  document.addEventListener("change", follow);
  find?.addEventListener("input", () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !words.every((word) => row.dataset.pick.includes(word));
    follow();
  });
  follow();
}
document.querySelector("[data-pick-filter]")?.addEventListener("submit", (event) => event.preventDefault());
