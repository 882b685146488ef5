// The dialog with the code of a request in each API. `request` gives its body, or null where it cannot be sent.

export function codeDialog(request, base) {
  const dialog = document.getElementById("code");
  const table = JSON.parse(dialog.dataset.table);

  async function show() {
    const body = request();
    if (!body) return;
    const { snippets, translated } = await import("./snippets.js");
    for (const api of table.apis) {
      const code = snippets(table, api, base(), translated(table, api, body));
      for (const [language, text] of Object.entries(code)) {
        document.getElementById(`code-${api.id}-${language}`).textContent = text;
      }
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
