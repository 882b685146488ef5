// A request as code that people can run: curl, Python and JavaScript with the official clients.
// The table, of http/pages/snippets.py, says how each API looks in code.

/** The code of a body at a base URL by the id of the language; the key comes from the environment. */
export function snippets(table, api, base, body) {
  const address = api.versioned ? base : base.replace(/\/v1$/, "");
  const common = { package: api.package, module: api.module, client: api.client, call: api.call, base: JSON.stringify(address) };
  const nth = body.stream ? 1 : 0;
  const curl = {
    unbuffered: body.stream ? "-N " : "", url: base + api.path, key: "$CAUSERIE_API_KEY",
    body: `'${JSON.stringify(body, null, 2).replace(/'/g, "'\\''")}'`,
  };
  const python = { ...common, key: 'os.environ["CAUSERIE_API_KEY"]', arguments: keywords(api, body), shown: api.python[nth] };
  const json = JSON.stringify(body, null, 2).replace(/^( *)"([a-z_]\w*)":/gim, "$1$2:");
  const javascript = { ...common, key: "process.env.CAUSERIE_API_KEY", body: json, shown: api.javascript[nth] };
  const reached = api.versioned || address !== base;
  return {
    curl: filled(table.languages.curl, curl),
    python: reached ? `import os\n\n${filled(table.languages.python, python)}` : `# ${table.unreached}`,
    javascript: reached ? filled(table.languages.javascript, javascript) : `// ${table.unreached}`,
  };
}

function filled(template, values) {
  return template.replace(/<(\w+)>/g, (_, name) => values[name]);
}

/** Arguments of a call in Python, those that the package does not know in one. */
function keywords(api, body) {
  const known = ([name]) => api.arguments.includes(name);
  const lines = Object.entries(body).filter(known).map(([name, value]) => `    ${name}=${literal(value, 1)},`);
  const extra = Object.entries(body).filter((each) => !known(each));
  if (extra.length) lines.push(`    extra_body=${literal(Object.fromEntries(extra), 1)},`);
  return lines.join("\n");
}

function literal(value, depth) {
  const pad = "    ".repeat(depth + 1);
  const end = "    ".repeat(depth);
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) {
    if (value.length === 0) return "[]";
    return `[\n${value.map((one) => `${pad}${literal(one, depth + 1)},`).join("\n")}\n${end}]`;
  }
  if (typeof value === "object") {
    const pairs = Object.entries(value);
    if (pairs.length === 0) return "{}";
    const inner = pairs.map(([name, one]) => `${pad}${quoted(name)}: ${literal(one, depth + 1)},`);
    return `{\n${inner.join("\n")}\n${end}}`;
  }
  return typeof value === "string" ? quoted(value) : String(value);
}

// JSON writes characters beyond the basic plane as they are; Python reads all JSON strings.
function quoted(text) {
  return JSON.stringify(text).replace(/\u007f/g, "\\u007f");
}

/** The body of a request of chat completions as another API has it. */
export function translated(table, api, body) {
  if (api.id === "chat") return body;
  const { max_tokens: most, ...rest } = body;
  const named = api.id === "messages" ? { ...rest, max_tokens: most ?? api.first.max_tokens } : { ...rest, max_completion_tokens: most };
  const made = {};
  for (const [name, value] of Object.entries(named)) {
    const place = table.names[name]?.[api.id];
    if (place === null || value === undefined) continue;
    put(made, (place || name).split("."), VALUES[api.id][name]?.(value) ?? value);
  }
  if (api.id === "messages") hoist(made);
  return made;
}

function put(made, [name, ...rest], value) {
  if (rest.length) put((made[name] ??= {}), rest, value);
  else made[name] = value;
}

/** How the values of fields look that differ in more than their names. */
const VALUES = {
  responses: {
    messages: (messages) => messages.flatMap(items),
    tools: (tools) => tools.map((tool) => ({ type: "function", strict: false, ...tool?.function })),
    tool_choice: (choice) => choice.function ? { type: "function", ...choice.function } : choice,
    response_format: ({ type, json_schema: schema }) => ({ type, ...schema }),
  },
  messages: {
    messages: (messages) => messages.map(turn),
    tools: (tools) => tools.map((tool) => {
      const { parameters, ...named } = tool?.function ?? {};
      return { ...named, input_schema: parameters ?? { type: "object" } };
    }),
    tool_choice: (choice) => choice.function ? { type: "tool", ...choice.function } : { type: choice === "required" ? "any" : choice },
    response_format: ({ json_schema: named }) => ({ type: "json_schema", schema: named?.schema ?? { type: "object" } }),
  },
};

const parts = (content) => typeof content === "string" ? [{ type: "text", text: content }] : content;

/** The input items of a message. */
function items({ role, content, reasoning_content: thought, tool_calls: calls, tool_call_id: id }) {
  if (role === "tool") return [{ type: "function_call_output", call_id: id, output: content }];
  const said = typeof content === "string" ? content : content?.map((each) => (
    each.image_url ? { type: "input_image", image_url: each.image_url.url } : { type: "input_text", text: each.text }
  ));
  return [
    ...(thought ? [{ type: "reasoning", summary: [], content: [{ type: "reasoning_text", text: thought }] }] : []),
    ...(said?.length || !calls ? [{ role, content: said ?? "" }] : []),
    ...(calls ?? []).map((call) => ({ type: "function_call", call_id: call.id, ...call.function })),
  ];
}

/** A message in blocks. Reasoning is left out: its block needs a signature. */
function turn({ role, content, tool_calls: calls, tool_call_id: id }) {
  if (role === "tool") return { role: "user", content: [{ type: "tool_result", tool_use_id: id, content }] };
  const used = (calls ?? []).map((call) => ({
    type: "tool_use", id: call.id, name: call.function.name, input: parsed(call.function.arguments),
  }));
  if (typeof content === "string" && !used.length) return { role, content };
  const said = parts(content ?? []).map((each) => each.image_url ? { type: "image", source: source(each.image_url.url) } : each);
  return { role, content: [...said.filter((each) => each.text !== ""), ...used] };
}

function source(url) {
  const [, type, data] = /^data:([^;,]+);base64,(.*)$/s.exec(url) ?? [];
  return data ? { type: "base64", media_type: type, data } : { type: "url", url };
}

/** The input of a call; what the model wrote may be no JSON. */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

/** The system prompt stands beside the messages; turns of the same role are one. */
function hoist(made) {
  const turns = [];
  for (const each of made.messages) {
    const last = turns.at(-1);
    if (each.role === "system") made.system = each.content;
    else if (last?.role === each.role) last.content = [...parts(last.content), ...parts(each.content)];
    else turns.push(each);
  }
  made.messages = turns;
}
