// The dialog with the code of a request in each API. `request` gives its body, or null where it cannot be sent.

/** Prepare the dialog; return what opens it. */
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
  return show;
}

/** The body with something to answer: what is typed; else what the last reply answers. */
export function answerable(body, draft) {
  const { messages } = body;
  if (!draft) while (messages.at(-1)?.role === "assistant") messages.pop();
  if (draft || !messages.some((each) => each.role === "user")) {
    messages.push({ role: "user", content: draft || "Hello" });
  }
  return body;
}
