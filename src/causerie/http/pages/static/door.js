// A door of the service, as a page of the same service asks it: with a key, if it wants one.

import { errorOf, reach, Refused } from "./completion.js";

export class Door {
  constructor(path) {
    this.path = path;
  }

  get base() {
    return location.origin + this.path;
  }

  /** The key that was typed; this tab forgets it when it is closed. */
  get key() {
    return stored((storage) => storage.getItem(`key ${this.path}`)) || "";
  }

  set key(value) {
    stored((storage) => storage.setItem(`key ${this.path}`, value));
  }

  headers() {
    return this.key ? { authorization: `Bearer ${this.key}` } : {};
  }

  /** The entries of its models; raises Refused, of which 401 asks for a key. */
  async models() {
    const response = await reach(`${this.path}/models`, { headers: this.headers(), cache: "no-cache" });
    if (!response.ok) throw new Refused(await errorOf(response), response.status);
    return (await response.json()).data;
  }

  complete(body, signal) {
    return reach(`${this.path}/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", ...this.headers() },
      body: JSON.stringify(body),
      signal,
    });
  }
}

function stored(use) {
  try {
    return use(sessionStorage);
  } catch { /* no storage: the key has to be typed again */
    return null;
  }
}
