// The dialog with the code of a request. `request` gives its body, or null where it cannot be sent.

export function codeDialog(request, base) {
  const dialog = document.getElementById("code");

  async function show() {
    const body = request();
    if (!body) return;
    const { snippets } = await import("./snippets.js");
    for (const [language, text] of Object.entries(snippets(base(), body))) {
      document.getElementById(`code-${language.toLowerCase()}`).textContent = text;
    }
    if (!dialog.open) dialog.showModal();
  }

  document.getElementById("show-code").addEventListener("click", show);
  document.getElementById("close-code").addEventListener("click", () => dialog.close());
  document.getElementById("door").addEventListener("change", show);
}

/** The body of a request with something to answer: what is typed, while nothing was said. */
export function answerable(body, draft) {
  if (!body.messages.some((each) => each.role === "user")) {
    body.messages.push({ role: "user", content: draft || "Hello" });
  }
  return body;
}
