// A request to any operation as code that people can run. Those of an API use its official client.

import { snippets } from "./snippets.js";

/**
 * The code by the id of the language. `request` has method, url, keyed and body; one that an API of
 * the table answers is shown with that API's client.
 */
export function codeOf(table, request) {
  const api = request.body && table.apis.find((each) => each.path === request.path);
  if (api) return snippets(table, api, request.base, request.body);
  return { curl: curl(request), python: python(request), javascript: javascript(request) };
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

function curl({ url, keyed, body }) {
  const address = /^[\w:/.%-]+$/.test(url) ? url : quoted(url);
  return [
    `curl ${address}`,
    ...(keyed ? ['  -H "Authorization: Bearer $CAUSERIE_API_KEY"'] : []),
    ...(body ? ['  -H "Content-Type: application/json"', `  -d ${quoted(JSON.stringify(body, null, 2))}`] : []),
  ].join(" \\\n");
}

const quoted = (text) => `'${text.replace(/'/g, "'\\''")}'`;

function python({ url, keyed, body }) {
  const headers = [
    ...(keyed ? ['"Authorization": "Bearer " + os.environ["CAUSERIE_API_KEY"]'] : []),
    ...(body ? ['"Content-Type": "application/json"'] : []),
  ];
  const given = [JSON.stringify(url), ...(body ? ["body"] : []), ...(headers.length ? ["headers=headers"] : [])];
  return [
    ...(keyed ? ["import os"] : []),
    `from urllib.request import ${headers.length ? "Request, " : ""}urlopen`,
    "",
    ...(headers.length ? [`headers = {${headers.join(", ")}}`] : []),
    ...(body ? [`body = ${JSON.stringify(JSON.stringify(body))}.encode()`] : []),
    `with urlopen(${headers.length ? `Request(${given.join(", ")})` : given[0]}) as reply:`,
    "    print(reply.read().decode())",
  ].join("\n");
}

function javascript({ url, keyed, body }) {
  const headers = [
    ...(keyed ? ["Authorization: `Bearer ${process.env.CAUSERIE_API_KEY}`"] : []),
    ...(body ? ['"Content-Type": "application/json"'] : []),
  ];
  const options = [
    ...(body ? ['  method: "POST",'] : []),
    ...(headers.length ? [`  headers: { ${headers.join(", ")} },`] : []),
    ...(body ? [`  body: JSON.stringify(${JSON.stringify(body, null, 2).replaceAll("\n", "\n  ")}),`] : []),
  ];
  const second = options.length ? `, {\n${options.join("\n")}\n}` : "";
  return `const reply = await fetch(${JSON.stringify(url)}${second});\nconsole.log(await reply.text());`;
}
