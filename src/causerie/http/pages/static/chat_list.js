// The list of conversations beside the chat, and what can be done with the one that is open.

import { toast } from "./toast.js";

const element = (id) => document.getElementById(id);
const title = element("title");
const query = element("search");

export class ChatList {
  constructor(conversations, page) {
    this.conversations = conversations;
    this.page = page;
    this.current = null;
    conversations.onChange = () => this.paint();
    query.addEventListener("input", () => this.paint());
    const actions = {
      rename: () => this.rename(), delete: () => this.remove(), save: () => this.save(), markdown: () => this.saveText(),
      "save-all": () => this.saveAll(), import: () => element("import-file").click(),
    };
    for (const [id, act] of Object.entries(actions)) element(id).addEventListener("click", act);
    element("import-file").addEventListener("change", (event) => {
      this.read([...event.target.files]);
      event.target.value = "";
    });
    element("chats").addEventListener("click", () => closeSidebar());
  }

  async put(conversation) {
    try {
      await this.conversations.put(conversation);
    } catch {
      toast("This browser has no room left, so the chat is not kept. Delete chats to make room.");
    }
  }

  show(current) {
    this.current = current;
    this.paint();
  }

  paint() {
    const found = this.conversations.find(query.value);
    const head = this.current && this.conversations.heads.get(this.current.id);
    if (!title.querySelector("input")) title.textContent = title.title = head?.title || "New chat";
    document.title = `${head?.title || "Chat"} · Causerie`;
    element("chat-menu").hidden = !head;
    element("no-chats").hidden = found.length > 0;
    element("no-chats").textContent = query.value ? "No chat contains this." : "Chats are kept in this browser.";
    const links = found.map(({ id, title: name }) => {
      const link = document.createElement("a");
      link.href = `#${id}`;
      const label = document.createElement("span");
      label.className = "cut";
      label.textContent = label.title = name;
      link.append(label);
      if (id === head?.id) link.setAttribute("aria-current", "page");
      else if (this.page.answering.has(id)) link.dataset.answering = "";
      return link;
    });
    const at = [...element("chats").children].indexOf(document.activeElement);
    element("chats").replaceChildren(...links);
    links[at]?.focus();
  }

  search() {
    document.querySelector(".sidebar").setAttribute("data-open", "");
    document.querySelector("[data-nav-switch]").setAttribute("aria-expanded", "true");
    query.focus();
    query.select();
  }

  rename() {
    const field = document.createElement("input");
    field.className = "input";
    field.value = this.current.title;
    field.maxLength = 200;
    field.setAttribute("aria-label", "Name of the chat");
    title.replaceChildren(field);
    field.focus();
    field.select();
    const { current } = this;
    const done = async (keep) => {
      if (!field.isConnected) return;
      const name = field.value.trim();
      field.onblur = null;
      title.replaceChildren();
      if (keep && name) current.title = name;
      await this.put(current);
      this.paint();
    };
    field.onblur = () => done(true);
    field.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Enter") done(true);
      if (event.key === "Escape") done(false);
    });
  }

  async remove() {
    await this.page.forget();
    const gone = this.current;
    await this.conversations.remove(gone.id);
    await this.page.begin();
    toast(`Deleted: ${gone.title}`, () => this.put(gone));
  }

  async save() {
    const { toFile } = await import("./files.js");
    download(`${fileName(this.current)}.json`, "application/json", toFile([this.current]));
  }

  async saveText() {
    const { toMarkdown } = await import("./files.js");
    download(`${fileName(this.current)}.md`, "text/markdown", toMarkdown(this.current));
  }

  async saveAll() {
    const { toFile } = await import("./files.js");
    download("chats.json", "application/json", toFile(await this.conversations.all()));
  }

  async read(files) {
    const { fromFile, NoConversations } = await import("./files.js");
    for (const file of files) {
      try {
        const found = fromFile(await file.text());
        for (const each of found) await this.put({ ...each, id: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}` });
        toast(`${file.name}: ${found.length === 1 ? "1 chat" : `${found.length} chats`} imported.`);
      } catch (failure) {
        if (!(failure instanceof NoConversations)) throw failure;
        toast(`${file.name}: ${failure.message}`);
      }
    }
  }
}

function closeSidebar() {
  document.querySelector(".sidebar").removeAttribute("data-open");
  document.querySelector("[data-nav-switch]").setAttribute("aria-expanded", "false");
}

function fileName({ title: name }) {
  return name.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "chat";
}

function download(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
