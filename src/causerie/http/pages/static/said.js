// One message of a person: its text and pictures, and a form to change it.

function clone(name) {
  return document.getElementById(`turn-${name}`).content.firstElementChild.cloneNode(true);
}

function part(node, name) {
  return node.querySelector(`[data-is="${name}"]`);
}

/** The text of a message's content, which is a string or a list of parts. */
export function textOf(content) {
  if (typeof content === "string") return content;
  return content.filter((each) => each.type === "text").map((each) => each.text).join("\n\n");
}

function picturesOf(content) {
  return typeof content === "string" ? [] : content.filter((each) => each.type === "image_url");
}

export class Said {
  constructor(content) {
    this.content = content;
    this.node = clone("user");
    part(this.node, "text").textContent = textOf(content);
    const pictures = part(this.node, "images");
    pictures.replaceChildren(...picturesOf(content).map((each) => {
      const picture = document.createElement("img");
      picture.src = each.image_url.url;
      picture.alt = "Attached picture";
      return picture;
    }));
    pictures.hidden = pictures.childElementCount === 0;
  }

  messages() {
    return [{ role: "user", content: this.content }];
  }

  text() {
    return textOf(this.content);
  }

  plain() {
    return { said: this.content };
  }

  /** Show a form with the text in place of it; `send` gets the new content. */
  edit(send) {
    if (this.node.querySelector("form")) return;
    const form = clone("edit");
    const field = form.querySelector("textarea");
    const words = part(this.node, "text");
    const button = this.node.querySelector("[data-do=edit]");
    const close = () => {
      form.remove();
      words.hidden = button.hidden = false;
      button.focus();
    };
    field.value = this.text();
    words.hidden = button.hidden = true;
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
      const pictures = picturesOf(this.content);
      if (text && send(pictures.length ? [{ type: "text", text }, ...pictures] : text)) return;
      field.focus();
    });
  }
}
