// Copies what stands in the element that the button names, and says so.

export async function press(button) {
  const source = document.getElementById(button.dataset.copy);
  if (!source) return;
  const text = source.value ?? source.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without https there is no clipboard: the text is selected, to be copied by hand.
    const range = document.createRange();
    range.selectNodeContents(source);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    if (!document.execCommand("copy")) return;
  }
  if (button.classList.contains("copied")) return; // it says so still
  const label = button.querySelector("[data-copy-label]");
  const before = label?.textContent;
  button.classList.add("copied");
  if (label) label.textContent = "Copied";
  setTimeout(() => {
    button.classList.remove("copied");
    if (label) label.textContent = before;
  }, 1600);
}
