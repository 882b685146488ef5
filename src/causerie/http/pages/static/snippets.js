// A request as code that people can run: curl, Python and JavaScript with the official clients.

const PYTHON_KNOWS = new Set([
  "model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n",
  "temperature", "top_p", "frequency_penalty", "presence_penalty", "seed", "logit_bias", "logprobs",
  "top_logprobs", "stop", "tools", "tool_choice", "parallel_tool_calls", "response_format",
  "reasoning_effort",
]);

/** The code of a request at a base URL, by the name of the language. */
export function snippets(base, body) {
  return { curl: curl(base, body), Python: python(base, body), JavaScript: javascript(base, body) };
}

function curl(base, body) {
  const json = JSON.stringify(body, null, 2).replace(/'/g, "'\\''");
  return [
    `curl ${body.stream ? "-N " : ""}${base}/chat/completions \\`,
    '  -H "Authorization: Bearer $CAUSERIE_API_KEY" \\',
    '  -H "Content-Type: application/json" \\',
    `  -d '${json}'`,
  ].join("\n");
}

function python(base, body) {
  const named = Object.entries(body).filter(([name]) => PYTHON_KNOWS.has(name));
  const extra = Object.fromEntries(Object.entries(body).filter(([name]) => !PYTHON_KNOWS.has(name)));
  const lines = named.map(([name, value]) => `    ${name}=${literal(value, 1)},`);
  if (Object.keys(extra).length) lines.push(`    extra_body=${literal(extra, 1)},`);
  const show = body.stream
    ? [
        "for chunk in reply:",
        "    for choice in chunk.choices:",
        '        print(choice.delta.content or "", end="", flush=True)',
      ]
    : ["print(reply.choices[0].message.content)"];
  return [
    "import os",
    "",
    "from openai import OpenAI",
    "",
    "client = OpenAI(",
    `    base_url=${JSON.stringify(base)},`,
    '    api_key=os.environ["CAUSERIE_API_KEY"],',
    ")",
    "reply = client.chat.completions.create(",
    ...lines,
    ")",
    ...show,
  ].join("\n");
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

function javascript(base, body) {
  const json = JSON.stringify(body, null, 2);
  const show = body.stream
    ? [
        "for await (const chunk of reply) {",
        '  process.stdout.write(chunk.choices[0]?.delta.content ?? "");',
        "}",
      ]
    : ["console.log(reply.choices[0].message.content);"];
  return [
    'import OpenAI from "openai";',
    "",
    "const client = new OpenAI({",
    `  baseURL: ${JSON.stringify(base)},`,
    "  apiKey: process.env.CAUSERIE_API_KEY,",
    "});",
    `const reply = await client.chat.completions.create(${json});`,
    ...show,
  ].join("\n");
}
