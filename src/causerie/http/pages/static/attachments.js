// Files that go with the next message: pictures where the model takes them; text, and that of PDF, for every model.

import { chip } from "./said.js";

const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const LARGEST_PICTURE = 8 * 1024 * 1024; // bytes; as text in a request it takes a third more
const LARGEST_TEXT = 512 * 1024;
const LARGEST_PDF = 32 * 1024 * 1024;

export class Attachments {
  /** `list` shows them; `tell` gets what cannot be attached and why. Files come by the `input`, which
   *  the `button` opens, are dropped on `place`, or pasted into `draft`. */
  constructor(list, tell, { button, input, place, draft }) {
    this.list = list;
    this.tell = tell;
    this.files = [];
    this.pictures = false; // whether the model takes them
    list.addEventListener("click", (event) => {
      const item = event.target.closest("button")?.closest("li");
      if (item) this.remove([...list.children].indexOf(item));
    });
    draft.addEventListener("paste", (event) => this.given(event, event.clipboardData.files));
    place.addEventListener("dragover", (event) => event.preventDefault());
    place.addEventListener("drop", (event) => this.given(event, event.dataTransfer.files));
    button.addEventListener("click", () => input.click());
    input.addEventListener("change", () => {
      this.add([...input.files]);
      input.value = "";
    });
  }

  given(event, files) {
    if (files.length === 0) return;
    event.preventDefault();
    this.add([...files]);
  }

  /** Whether the model takes all that is attached; says what it does not. */
  fit() {
    const misfit = this.pictures ? null : this.files.find((file) => file.url);
    if (misfit) this.tell(`${misfit.name}: this model takes no pictures.`);
    return !misfit;
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
    if (file.type === "application/pdf") {
      if (file.size > LARGEST_PDF) throw new Error(`${file.name} is larger than 32 MB.`);
      const { textOf } = await import("./pdf_text.js");
      return { name: file.name, text: await textOf(file, LARGEST_TEXT) };
    }
    if (file.size > LARGEST_TEXT) throw new Error(`${file.name} is larger than 512 kB.`);
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      return { name: file.name, text };
    } catch {
      throw new Error(`${file.name} is neither text, nor PDF, nor a picture (PNG, JPEG, GIF, WebP).`);
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

  /** What is attached, which is nothing from now on. */
  take() {
    const { files } = this;
    this.clear();
    return files;
  }

  show() {
    this.list.hidden = this.files.length === 0;
    this.list.replaceChildren(...this.files.map((file) => {
      const item = document.createElement("li");
      const remove = document.createElement("button");
      remove.type = "button";
      remove.className = "button button-plain button-small";
      remove.textContent = "Remove";
      remove.setAttribute("aria-label", `Remove ${file.name}`);
      item.append(chip(file), remove);
      return item;
    }));
  }
}

function address(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
}
