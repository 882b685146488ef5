// A request to any operation as code that people can run. Completions use the official clients.

import { snippets } from "./snippets.js";

/**
 * The code by the name of the language. `request` has method, url and keyed; a completion has
 * base and body instead, as `snippets` takes them.
 */
export function codeOf(request) {
  if (request.body) return snippets(request.base, request.body);
  return { curl: curl(request), Python: python(request), JavaScript: javascript(request) };
}

/** The path of an operation below its base, with its values; those of the query that are empty are left out. */
export function pathOf(pattern, inPath, inQuery) {
  const path = pattern.replace(/\{(\w+)\}/g, (whole, name) => segments(inPath[name]) || whole);
  const query = new URLSearchParams(Object.entries(inQuery).filter(([, value]) => value !== ""));
  return query.size ? `${path}?${query}` : path;
}

/** An id may have slashes, which stay: they are part of the path. */
function segments(value) {
  return (value || "").split("/").map(encodeURIComponent).join("/");
}

function curl({ url, keyed }) {
  const address = /^[\w:/.%-]+$/.test(url) ? url : `'${url.replace(/'/g, "'\\''")}'`;
  return keyed ? `curl ${address} \\\n  -H "Authorization: Bearer $CAUSERIE_API_KEY"` : `curl ${address}`;
}

function python({ url, keyed }) {
  const address = JSON.stringify(url);
  if (!keyed) {
    return `from urllib.request import urlopen\n\nwith urlopen(${address}) as reply:\n    print(reply.read().decode())`;
  }
  return [
    "import os",
    "from urllib.request import Request, urlopen",
    "",
    'headers = {"Authorization": "Bearer " + os.environ["CAUSERIE_API_KEY"]}',
    `with urlopen(Request(${address}, headers=headers)) as reply:`,
    "    print(reply.read().decode())",
  ].join("\n");
}

function javascript({ url, keyed }) {
  const options = keyed
    ? ", {\n  headers: { Authorization: `Bearer ${process.env.CAUSERIE_API_KEY}` },\n}"
    : "";
  return `const reply = await fetch(${JSON.stringify(url)}${options});\nconsole.log(await reply.text());`;
}
