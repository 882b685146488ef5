// Conversations that this browser keeps, in IndexedDB; where there is none, until the page closes.
//
// A head is what the list and the search need; the pictures of a conversation are in its body, which
// is read when it is opened.

import { partsOf } from "./said.js";

const NAME = "causerie";
const STORES = ["heads", "bodies"];
const PATIENCE = 300; // milliseconds for the answer of another tab

export class Conversations {
  /** `kept` is whether they will be here when the page is opened again. */
  static async open() {
    try {
      return new Conversations(await opened(), true);
    } catch {
      return new Conversations(null, false);
    }
  }

  constructor(database, kept) {
    this.database = database;
    this.kept = kept;
    this.heads = new Map();
    this.bodies = new Map(); // in place of the database
    this.onChange = () => {};
    this.writes = () => false; // whether this page writes a reply of a conversation now
    this.others = new BroadcastChannel(`${NAME} conversations`);
    this.others.onmessage = ({ data }) => this.heard(data);
  }

  async heard({ asks, writes }) {
    if (writes) return;
    if (asks) {
      if (this.writes(asks)) this.others.postMessage({ writes: asks });
      return;
    }
    await this.load();
    this.onChange();
  }

  /** Whether another page, of another tab, writes a reply of a conversation now. */
  writtenElsewhere(id) {
    return new Promise((resolve) => {
      const answered = ({ data }) => { if (data.writes === id) done(true); };
      const done = (found) => {
        this.others.removeEventListener("message", answered);
        resolve(found);
      };
      this.others.addEventListener("message", answered);
      this.others.postMessage({ asks: id });
      setTimeout(done, PATIENCE, false);
    });
  }

  async load() {
    if (!this.database) return;
    const found = await settled(this.store("heads", "readonly").getAll());
    this.heads = new Map(found.map((head) => [head.id, head]));
  }

  /** Heads of those that contain all the words, the latest first. */
  find(query = "") {
    const wanted = query.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (head) => wanted.every((word) => head.text.includes(word));
    return [...this.heads.values()].filter(fits).sort((one, other) => other.updated - one.updated);
  }

  async get(id) {
    if (!this.heads.has(id)) return null;
    return this.database ? settled(this.store("bodies", "readonly").get(id)) : this.bodies.get(id);
  }

  async all() {
    return Promise.all(this.find().map((head) => this.get(head.id)));
  }

  async put(conversation) {
    const { id, title, updated } = conversation;
    const head = { id, title, updated, text: `${title}\n${plainText(conversation)}`.toLowerCase() };
    this.heads.set(id, head);
    await this.write((stores) => {
      stores.heads.put(head);
      stores.bodies.put(conversation);
    }, () => this.bodies.set(id, structuredClone(conversation)));
  }

  async remove(id) {
    this.heads.delete(id);
    await this.write((stores) => {
      stores.heads.delete(id);
      stores.bodies.delete(id);
    }, () => this.bodies.delete(id));
  }

  store(name, mode) {
    return this.database.transaction(name, mode).objectStore(name);
  }

  async write(change, otherwise) {
    if (this.database) {
      const transaction = this.database.transaction(STORES, "readwrite");
      change(Object.fromEntries(STORES.map((name) => [name, transaction.objectStore(name)])));
      transaction.commit(); // a page that closes does not wait
      await new Promise((resolve, reject) => {
        transaction.oncomplete = resolve;
        transaction.onabort = transaction.onerror = () => reject(transaction.error);
      });
    } else otherwise();
    this.others.postMessage({});
    this.onChange();
  }
}

/** Everything that was said, to search in. */
function plainText({ panes }) {
  const ofPerson = ({ said, files }) => [said, ...files.map(({ name }) => name)];
  const words = (each) => (each.said === undefined ? [each.answer.message.content] : ofPerson(partsOf(each)));
  return panes.flat().flatMap(words).join("\n");
}

function opened() {
  const request = indexedDB.open(NAME, 1);
  request.onupgradeneeded = () => {
    for (const name of STORES) request.result.createObjectStore(name, { keyPath: "id" });
  };
  return settled(request);
}

function settled(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
