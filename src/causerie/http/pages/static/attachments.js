// Files that go with the next message: pictures where the model takes them, and text for every model.

const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const LARGEST_PICTURE = 8 * 1024 * 1024; // bytes; as text in a request it takes a third more
const LARGEST_TEXT = 512 * 1024;

export class Attachments {
  /** `list` shows them; `tell` gets what cannot be attached and why. */
  constructor(list, tell) {
    this.list = list;
    this.tell = tell;
    this.files = [];
    this.pictures = false; // whether the model takes them
    list.addEventListener("click", (event) => {
      const item = event.target.closest("button")?.closest("li");
      if (item) this.remove([...list.children].indexOf(item));
    });
  }

  async add(files) {
    for (const file of files) {
      try {
        this.files.push(await this.read(file));
      } catch (failure) {
        this.tell(failure.message);
      }
    }
    this.show();
  }

  async read(file) {
    if (PICTURES.includes(file.type)) {
      if (!this.pictures) throw new Error(`${file.name}: this model takes no pictures.`);
      if (file.size > LARGEST_PICTURE) throw new Error(`${file.name} is larger than 8 MB.`);
      return { name: file.name, url: await address(file) };
    }
    if (file.size > LARGEST_TEXT) throw new Error(`${file.name} is larger than 512 kB.`);
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      return { name: file.name, text };
    } catch {
      throw new Error(`${file.name} is neither text nor a picture (PNG, JPEG, GIF, WebP).`);
    }
  }

  remove(index) {
    this.files.splice(index, 1);
    this.show();
  }

  clear() {
    this.files = [];
    this.show();
  }

  /** The content of a message with this text, or "" where there is nothing to say. */
  content(text) {
    const texts = this.files.filter((file) => file.text !== undefined).map(({ name, text: inside }) => fenced(name, inside));
    const whole = [...texts, text].filter(Boolean).join("\n\n");
    const pictures = this.files.filter((file) => file.url);
    if (pictures.length === 0) return whole;
    const parts = pictures.map(({ url }) => ({ type: "image_url", image_url: { url } }));
    return whole ? [{ type: "text", text: whole }, ...parts] : parts;
  }

  show() {
    this.list.hidden = this.files.length === 0;
    this.list.replaceChildren(...this.files.map(({ name, url }) => {
      const item = document.createElement("li");
      const label = document.createElement("span");
      label.className = "cut";
      label.textContent = label.title = name;
      const remove = document.createElement("button");
      remove.type = "button";
      remove.className = "button button-plain button-small";
      remove.textContent = "Remove";
      remove.setAttribute("aria-label", `Remove ${name}`);
      if (url) {
        const picture = document.createElement("img");
        picture.src = url;
        picture.alt = "";
        item.append(picture);
      }
      item.append(label, remove);
      return item;
    }));
  }
}

/** Text between marks that it does not hold itself. */
function fenced(name, text) {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([marks]) => marks.length));
  const marks = "`".repeat(longest + 1);
  return `${name}:\n${marks}\n${text.replace(/\n$/, "")}\n${marks}`;
}

function address(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
}
