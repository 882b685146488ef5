// One message of a person: its text, its files as chips, and a form to change it.

function clone(name) {
  return document.getElementById(`turn-${name}`).content.firstElementChild.cloneNode(true);
}

function part(node, name) {
  return node.querySelector(`[data-is="${name}"]`);
}

/** Text between marks that it does not hold itself. */
function fenced(name, text) {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([marks]) => marks.length));
  const marks = "`".repeat(longest + 1);
  return `${name}:\n${marks}\n${text.replace(/\n$/, "")}\n${marks}`;
}

/** The content of a message: texts of files stand before what was typed, pictures behind it. */
export function contentOf(text, files) {
  const texts = files.filter((file) => file.text !== undefined).map((file) => fenced(file.name, file.text));
  const whole = [...texts, text].filter(Boolean).join("\n\n");
  const pictures = files.filter((file) => file.url).map(({ url }) => ({ type: "image_url", image_url: { url } }));
  if (pictures.length === 0) return whole;
  return whole ? [{ type: "text", text: whole }, ...pictures] : pictures;
}

/** The text and files of a message that is kept; one of before has its pictures among its parts. */
export function partsOf({ said, files = [] }) {
  if (!Array.isArray(said)) return { said, files };
  const texts = said.filter((each) => each?.type === "text").map((each) => each.text);
  const others = said.filter((each) => each?.type !== "text");
  return { said: texts.join("\n\n"), files: others.map((each) => ({ name: "Picture", url: each?.image_url?.url })) };
}

/** What a file is shown as: its picture, or its name, behind which its text opens. */
export function chip({ name, url, text }) {
  const item = document.createElement(text === undefined ? "span" : "details");
  const label = document.createElement(text === undefined ? "span" : "summary");
  item.className = "file-chip";
  label.className = "cut";
  label.textContent = label.title = name;
  if (url) {
    const picture = document.createElement("img");
    picture.src = url;
    picture.alt = "";
    item.append(picture);
  }
  item.append(label);
  if (text !== undefined) {
    item.addEventListener("toggle", () => {
      const shown = item.querySelector("pre") ?? item.appendChild(document.createElement("pre"));
      shown.textContent ||= text.slice(0, PREVIEW);
      shown.tabIndex = 0;
    });
  }
  return item;
}

const PREVIEW = 4000; // characters of a file that its chip shows

export class Said {
  constructor(text, files = []) {
    this.said = text;
    this.files = files;
    this.node = clone("user");
    part(this.node, "text").textContent = text;
    part(this.node, "text").hidden = !text;
    part(this.node, "files").replaceChildren(...files.map(chip));
    part(this.node, "files").hidden = files.length === 0;
  }

  messages() {
    return [{ role: "user", content: contentOf(this.said, this.files) }];
  }

  text() {
    return this.said;
  }

  plain() {
    return { said: this.said, ...(this.files.length && { files: this.files }) };
  }

  /** Show a form with the text in place of it; `send` gets the new text, and returns whether it was sent. */
  edit(send) {
    if (this.node.querySelector("form")) return;
    const form = clone("edit");
    const field = form.querySelector("textarea");
    const shown = [part(this.node, "text"), part(this.node, "acts")];
    const close = () => {
      form.remove();
      for (const each of shown) each.hidden = false;
      this.node.querySelector("[data-do=edit]").focus();
    };
    field.value = this.said;
    for (const each of shown) each.hidden = true;
    this.node.append(form);
    field.focus();
    form.querySelector("[data-do=cancel]").addEventListener("click", close);
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.target !== field) return;
      event.preventDefault();
      form.requestSubmit();
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const text = field.value.trim();
      if (!(text || this.files.length) || !send(text)) field.focus();
    });
  }
}
