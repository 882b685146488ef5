// The scripts of the console that need no browser. STATIC is the folder that they are in.

import assert from "node:assert/strict";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

const from = (name) => import(pathToFileURL(`${process.env.STATIC}/${name}`));
const { parse, inline, GrowingText } = await from("markdown.js");
const { fromFile, toFile, toMarkdown, NoConversations } = await from("files.js");
const { abilities } = await from("models.js");
const { check } = await from("schema.js");
const { snippets, translated } = await from("snippets.js");
const table = JSON.parse(process.env.CODE);
const [chat, responses, messages] = table.apis;
const { codeOf, pathOf } = await from("request_code.js");
const { Answer, Refused, events, reach, read } = await from("completion.js");

const flat = (pieces) =>
  pieces.map((piece) => (typeof piece === "string" ? piece : { ...piece, ...(piece.inline && { inline: flat(piece.inline) }) }));
const types = (text) => parse(text).map((block) => block.type);

test("blocks", () => {
  assert.deepEqual(types("# A\n\ntext\nmore\n\n---\n> q\n\n1. x\n2. y\n\n- z\n\n```py\nc\n```"), [
    "heading", "paragraph", "rule", "quote", "list", "list", "code",
  ]);
  const [code] = parse("```js\nlet a = 1;\n\n# no heading\n```");
  assert.deepEqual([code.language, code.text], ["js", "let a = 1;\n\n# no heading"]);
  assert.equal(parse("```\nnot closed yet")[0].text, "not closed yet");
  assert.equal(parse("````\n```\n````")[0].text, "```");
});

test("hash marks end a heading only behind a space", () => {
  const title = (text) => parse(text)[0].inline.join("");
  const read = ["# C#", "## F# and C# ##", "# a ### ", "### ###", "# #", "#\tb", "# a \\#", "# #1"].map(title);
  assert.deepEqual(read, ["C#", "F# and C#", "a", "", "", "b", "a #", "#1"]);
  assert.deepEqual(types("#a\n\n####### b\n\n    # c"), ["paragraph", "paragraph", "paragraph"]);
});

test("lists hold blocks, and other lists", () => {
  const [list] = parse("3. one\n   more\n\n   ```\n   code\n   ```\n4. two\n   - in\n     - deeper\n5. three");
  assert.equal(list.start, 3);
  assert.equal(list.items.length, 3);
  assert.deepEqual(list.items[0].map((block) => block.type), ["paragraph", "code"]);
  assert.equal(list.items[0][1].text, "code");
  assert.equal(list.items[1][1].items[0][1].type, "list");
  assert.deepEqual(types("- a\n\ntext"), ["list", "paragraph"]);
});

test("tables", () => {
  const [table] = parse("| a | b |\n|:-:|--:|\n| 1 | x\\|y |\n| 2 |");
  assert.deepEqual(table.align, ["center", "end"]);
  assert.deepEqual(table.rows, [[["1"], ["x|y"]], [["2"], []]]);
  assert.deepEqual(types("a | b\nno table"), ["paragraph"]);
});

test("emphasis, code and links", () => {
  assert.deepEqual(flat(inline("a **b *c*** `d**`")), [
    "a ", { type: "strong", inline: ["b ", { type: "em", inline: ["c"] }] }, " ", { type: "code", text: "d**" },
  ]);
  assert.deepEqual(inline("snake_case_name 2 * 3 * 4 **"), ["snake_case_name 2 * 3 * 4 **"]);
  assert.deepEqual(flat(inline("[x](https://a.b/c_(d)) https://e.f/g.")), [
    { type: "link", to: "https://a.b/c_(d)", inline: ["x"] }, " ",
    { type: "link", to: "https://e.f/g", inline: ["https://e.f/g"] }, ".",
  ]);
  assert.deepEqual(inline("\\*a\\*").join(""), "*a*");
});

test("formulas; amounts of money are none", () => {
  const formula = (text, display, source) => ({ type: "formula", text, display, source });
  assert.deepEqual(inline("so \\(a^2\\) and \\[b\\] or $c_1$."), [
    "so ", formula("a^2", false, "\\(a^2\\)"), " and ", formula("b", true, "\\[b\\]"), " or ", formula("c_1", false, "$c_1$"), ".",
  ]);
  for (const text of ["$5 and $6", "$5-$6", "a $5, b 6$ c", "US$5 or US$6", "$ x $", "$a\nb$", "2$ to 3$", "one $ only", "\\$x$"]) {
    assert.ok(!inline(text).some((piece) => piece.type === "formula"), text);
  }
  assert.deepEqual(inline("\\(open \\[1\\]").map((piece) => piece.type ?? piece), ["(", "open ", "formula"]);
  const [block, after] = parse("$$\n\\frac{a}{b}\n- c\n$$\n\\[ x\n\\]");
  assert.deepEqual([block.type, block.text, after.type, after.text], ["formula", "\\frac{a}{b}\n- c", "formula", "x"]);
  assert.deepEqual(types("$$ a $$ b\n\n$$\n\nc"), ["paragraph", "paragraph", "paragraph"]);
  assert.deepEqual(inline("`$a$`"), [{ type: "code", text: "$a$" }]);
});

test("tasks and footnotes", () => {
  const [list] = parse("- [ ] open\n- [x] **done**\n- [y] neither");
  assert.deepEqual(list.items.map((item) => item.done), [false, true, undefined]);
  assert.deepEqual(list.items[0][0].inline, ["open"]);
  const [text, note] = parse("So[^a].\n\n[^a]: Because.\n  It is.");
  assert.deepEqual(text.inline[1], { type: "note", id: "a" });
  assert.deepEqual([note.type, note.id, note.blocks[0].type], ["note", "a", "paragraph"]);
  assert.deepEqual(inline("[^a b] [x](https://a.b)").at(-1).type, "link");
});

test("nothing becomes a link that runs or leaves the web", () => {
  for (const to of ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,x", "vbscript:x", "//evil", "/console/sign-out", "file:///etc"]) {
    assert.ok(!JSON.stringify(parse(`[x](${to}) <${to}> ![p](${to})`)).includes('"link"'), to);
  }
  assert.deepEqual(flat(inline("<img src=x onerror=alert(1)>")), ["<img src=x onerror=alert(1)>"]);
});

// Where this takes squared time it does not end within what a test may take.
test("long texts of one piece are read to their end, and none is lost", () => {
  const nasty = ["*", "_", "`", "[", "**a ", "[a](", "> ", "- ", "~~", "|", "\\", "<h", "*a _b ", "``a` ", "$", "$$", "$a", "$$ a\n", "$$ a $$ b\n", "\\[ a\n", "\\(", "[^1]: ", "[^1]: a\n", "- [ ] "];
  for (const piece of nasty) parse(piece.repeat(Math.ceil(100_000 / piece.length)));
  const [spaces, hashes, ticks] = [" ", "#", "`"].map((mark) => mark.repeat(100_000));
  parse([`# a${spaces}${hashes}${spaces}b`, `\`\`\`${spaces}\``, `${ticks}a\``, `- ${spaces}x`, `a|b\n${spaces}-${spaces}x`, `a|b\n|${spaces}-x`].join("\n\n"));
  const letters = "the quick (brown) fox | jumps * over _ the `lazy dog [1] ![2] <3> ~~4";
  assert.ok(JSON.stringify(parse(letters)).includes("lazy dog"));
});

test("any cut of a text can be shown", () => {
  const text = "# T\n\n1. **a** `b`\n   - c\n\n```js\nx\n```\n| a | b |\n|---|---|\n| [l](https://x.y) | 2 |\n> q";
  for (let end = 0; end <= text.length; end += 1) parse(text.slice(0, end));
});

// Each line may turn out to belong to the block before it; what was read once must not be wrong then.
test("a text that grows reads as the whole text does, at every letter", () => {
  const texts = [
    "a\n-\n--\n---x\n1\n1.\n1. b\n\n   c\n\nd | e\n-|-\n1 | 2\n-|-|-\n> q\n> r\n```js\nx\n``\n```\n\n\ny",
    "a\n$$\nx\n- y\n$$\nb\n$$ c\n\n$$ d $$ e\n\\[\nx\n\n\\[ y \\]\n$$$$\n$$z$$\n$$ open\n+ a\n\n+ b\n\nc",
    "a[^1] b\n[^1]: c\nd\n\n[^x]:\n- [ ] e\n- [x] f\n  g\n[^1]: [^2]: h",
    "x\r\ny\r\n\r\n- a\r\n\r\n  b\r\n\r\nz\n#\n# h\n~~~\n\n~~\n~~~~\n    z\n\n  \n - l\n1) m\n***\n* * *",
  ];
  for (const text of texts) {
    const growing = new GrowingText();
    for (let end = 0; end <= text.length; end += 1) {
      assert.deepEqual(growing.read(text.slice(0, end)), parse(text.slice(0, end)), JSON.stringify(text.slice(0, end)));
    }
    assert.deepEqual(growing.read("another"), parse("another"));
  }
});

const LONG = {
  "one paragraph": "some words and *more* of them ",
  "one line": "word".repeat(3),
  "one list": "- an item with `code`\n",
  "one listing": "let x = 1;\n",
  "one quote": "> said by somebody\n",
  "one table": "| a | b |\n",
  "many blocks": "A paragraph.\n\n## Next\n\n- one\n- two\n\n",
};
const BEGINNINGS = { "one listing": "```js\n", "one table": "| a | b |\n|---|---|\n" };

/** Read a text of so many characters piece by piece, as it streams. */
function streamed(kind, length) {
  const beginning = BEGINNINGS[kind] ?? "";
  const text = beginning + LONG[kind].repeat(length / LONG[kind].length);
  const growing = new GrowingText();
  for (let end = 4; end < text.length; end += 4) {
    const blocks = growing.read(text.slice(0, end), false);
    assert.ok(text.slice(0, end).endsWith(growing.rest));
    assert.ok(blocks.length || growing.rest);
  }
  assert.deepEqual(growing.read(text), parse(text));
  assert.equal(growing.rest, "");
  return growing.parsed;
}

test("all characters that are parsed while a text grows are proportional to it", () => {
  for (const kind of Object.keys(LONG)) {
    const [once, twice] = [streamed(kind, 8_000), streamed(kind, 16_000)];
    assert.ok(twice < 2.5 * once, `${kind}: ${once}, then ${twice}`);
    assert.ok(twice < 16_000 * 512, `${kind}: ${twice}`);
  }
});

test("a text that has not grown is not parsed again", () => {
  const growing = new GrowingText();
  growing.read("a\n\nb");
  growing.read("a\n\nb");
  assert.equal(growing.parsed, 4);
});

test("what a growing text has read once is not read again", () => {
  const growing = new GrowingText();
  const [first] = growing.read("a\n\nb\n\nc\n\nd");
  assert.equal(growing.read("a\n\nb\n\nc\n\nd\n\ne")[0], first);
});

const CHAT = {
  id: "x", title: "Trees", created: 1, updated: 2, models: ["m"], settings: [["model", "m"]],
  panes: [[
    { said: "Tallest?" },
    {
      model: "m", schema: null, results: null, stopped: false, id: "r",
      answer: { message: { role: "assistant", content: "Hyperion" }, finish: "stop", usage: null, firstAt: 1, thoughtAt: 1, endedAt: 2, id: "r" },
    },
  ]],
};

test("chats come back from their file", () => {
  const [chat] = fromFile(toFile([CHAT]));
  assert.equal(chat.id, undefined); // who reads it gives a new one
  assert.deepEqual([chat.title, chat.models, chat.settings], ["Trees", ["m"], [["model", "m"]]]);
  assert.equal(chat.panes[0][1].answer.message.content, "Hyperion");
  assert.equal(toMarkdown(CHAT), "# Trees\n\n## You\n\nTallest?\n\n## m\n\nHyperion\n");
});

test("a file that others wrote brings nothing but chats", () => {
  const content = (part) => toFile([{ ...CHAT, panes: [[{ said: [part] }]] }]);
  const picture = (url) => content({ type: "image_url", image_url: { url } });
  const [[[read]]] = fromFile(picture("data:image/png;base64,AAAA")).map(({ panes }) => panes);
  assert.deepEqual(read, { said: "", files: [{ name: "Picture", url: "data:image/png;base64,AAAA" }] });
  const said = (more) => toFile([{ ...CHAT, panes: [[{ said: "a", ...more }]] }]);
  const nested = (depth) => ({ said: "a", ...(depth && { versions: { tails: [null, [nested(depth - 1)]], nth: 0 } }) });
  const deep = (depth) => said(nested(depth));
  const [[[versions]]] = fromFile(deep(2)).map(({ panes }) => panes);
  assert.deepEqual(versions.versions.tails[1][0].versions.tails[1], [{ said: "a", files: [] }]);
  const wrong = [
    "", "null", "[]", "{}", toFile("no list"), toFile([null]), toFile([{}]), toFile([{ ...CHAT, title: 5 }]),
    toFile([{ ...CHAT, panes: [[{}]] }]), toFile([{ ...CHAT, settings: ["x"] }]),
    picture("https://evil.example/p.png"), picture("data:image/svg+xml;base64,AAAA"), picture("javascript:alert(1)"), content(7),
    said({ files: [{ name: "p", url: "https://evil.example/p.png" }] }), said({ files: [{ text: "x" }] }), said({ files: 5 }),
    said({ versions: { tails: [null], nth: 1 } }), said({ versions: { tails: [null, [{}]], nth: 0 } }), said({ versions: { tails: [null, []], nth: 0 } }),
    deep(60),
  ];
  for (const text of wrong) assert.throws(() => fromFile(text), NoConversations, text);
});

test("abilities of a model, in a few words", () => {
  assert.deepEqual(abilities({ id: "m" }), []);
  const entry = {
    supported_parameters: ["tools", "response_format", "seed"], reasoning: { supported_efforts: ["low"] },
    architecture: { input_modalities: ["text", "image"] }, context_length: 40960,
  };
  assert.deepEqual(abilities(entry), ["tools", "structured output", "thinking", "images", "40,960 tokens of context"]);
  assert.deepEqual(abilities({ reasoning: { supported_efforts: [] } }), []);
  assert.deepEqual(abilities({ reasoning: { supported_efforts: null } }), []);
});

test("schemas: what fits and what does not", () => {
  const schema = {
    type: "object",
    properties: { n: { type: "integer", minimum: 1 }, tags: { type: "array", items: { enum: ["a", "b"] }, uniqueItems: true }, next: { $ref: "#" } },
    required: ["n"],
    additionalProperties: false,
  };
  const places = (value) => check(schema, value).problems.map(({ at }) => at);
  assert.deepEqual(places({ n: 1, tags: ["a"], next: { n: 2 } }), []);
  assert.deepEqual(places({ n: 0 }), ["/n"]);
  assert.deepEqual(places({ n: 1.5 }), ["/n"]);
  assert.deepEqual(places({}), ["/"]);
  assert.deepEqual(places({ n: 1, x: 1 }), ["/x"]);
  assert.deepEqual(places({ n: 1, tags: ["a", "a"] }), ["/tags"]);
  assert.deepEqual(places({ n: 1, tags: ["c"] }), ["/tags/0"]);
  assert.deepEqual(places({ n: 1, next: { n: "2" } }), ["/next/n"]);
  assert.deepEqual(check({ format: "date" }, "x").unchecked, ["format"]);
});

test("schemas: every keyword refuses something", () => {
  const cases = [
    [{ const: 1 }, 1, 2], [{ minLength: 2 }, "😀😀", "😀"], [{ maxLength: 1 }, "😀", "ab"], [{ pattern: "^a" }, "ab", "ba"],
    [{ maximum: 3 }, 3, 4], [{ exclusiveMinimum: 3 }, 4, 3], [{ exclusiveMaximum: 3 }, 2, 3], [{ multipleOf: 0.1 }, 0.3, 0.35],
    [{ minItems: 1 }, [1], []], [{ maxItems: 1 }, [1], [1, 2]], [{ prefixItems: [{ type: "string" }] }, ["a"], [1]],
    [{ contains: { const: 1 } }, [2, 1], [2]], [{ minProperties: 1 }, { a: 1 }, {}], [{ maxProperties: 0 }, {}, { a: 1 }],
    [{ patternProperties: { "^a": { type: "string" } } }, { ab: "x" }, { ab: 1 }], [{ propertyNames: { maxLength: 1 } }, { a: 1 }, { ab: 1 }],
    [{ additionalProperties: { type: "string" } }, { a: "x" }, { a: 1 }], [{ allOf: [{ minimum: 1 }, { maximum: 2 }] }, 1, 3],
    [{ anyOf: [{ const: 1 }, { const: 2 }] }, 2, 3], [{ oneOf: [{ minimum: 1 }, { maximum: 2 }] }, 0, 1], [{ not: { const: 1 } }, 2, 1],
    [{ if: { type: "string" }, then: { minLength: 1 }, else: { minimum: 1 } }, "a", 0], [{ type: ["string", "null"] }, null, 1],
    [{ $ref: "#/$defs/a~1b", $defs: { "a/b": { type: "string" } } }, "x", 1], [{ $ref: "https://elsewhere" }, undefined, 1],
  ];
  for (const [schema, good, bad] of cases) {
    if (good !== undefined) assert.deepEqual(check(schema, good).problems, [], JSON.stringify([schema, good]));
    assert.equal(check(schema, bad).problems.length > 0, true, JSON.stringify([schema, bad]));
  }
});

test("code says what the request says", () => {
  const body = { model: "m", messages: [{ role: "user", content: "it's \"so\"\n" }], stream: true, top_k: 5, tools: [], seed: null };
  const { curl, python, javascript } = snippets(table, chat, "http://h/v1", body);
  const json = /-d '([\s\S]*)'$/.exec(curl)[1].replaceAll("'\\''", "'");
  assert.deepEqual(JSON.parse(json), body);
  assert.match(python, /extra_body=\{\n\s+"top_k": 5,\n\s+\},/);
  assert.match(python, /stream=True,/);
  assert.match(python, /seed=None,/);
  assert.match(python, /"content": "it's \\"so\\"\\n",/);
  assert.match(javascript, /baseURL: "http:\/\/h\/v1"/);
});

const stream = (pieces) => new ReadableStream({
  start(controller) {
    for (const piece of pieces) controller.enqueue(new TextEncoder().encode(piece));
    controller.close();
  },
});
const answered = (pieces, init = {}) =>
  new Response(stream(pieces), { headers: { "content-type": "text/event-stream; charset=utf-8" }, ...init });
const chunk = (delta, more = {}) => `data: ${JSON.stringify({ id: "c", choices: [{ index: 0, delta }], ...more })}\n\n`;

test("events, however they are cut", async () => {
  const text = 'data: {"a":"\u2028é"}\r\n\r\n: ping\n\ndata: [DONE]\n\n';
  const bytes = new TextEncoder().encode(text);
  for (let size = 1; size < 7; size += 1) {
    const body = new ReadableStream({
      start(controller) {
        for (let at = 0; at < bytes.length; at += size) controller.enqueue(bytes.slice(at, at + size));
        controller.close();
      },
    });
    const found = [];
    for await (const data of events(body)) found.push(data);
    assert.deepEqual(found, ['{"a":"\u2028é"}', "[DONE]"], `size ${size}`);
  }
});

test("an answer is put together", async () => {
  const answer = new Answer();
  let seen = 0;
  await read(answered([
    chunk({ role: "assistant" }), chunk({ reasoning_content: "hm" }), chunk({ reasoning_content: "m" }), chunk({ content: "A" }),
    chunk({ tool_calls: [{ index: 0, id: "t1", type: "function", function: { name: "f", arguments: '{"a"' } }] }),
    chunk({ tool_calls: [{ index: 0, function: { arguments: ":1}" } }] }),
    `data: ${JSON.stringify({ choices: [{ index: 0, delta: {}, finish_reason: "tool_calls" }] })}\n\n`,
    `data: ${JSON.stringify({ choices: [], usage: { completion_tokens: 5 } })}\n\n`, "data: [DONE]\n\n",
  ]), answer, () => { seen += 1; });
  answer.end();
  assert.deepEqual(answer.message, {
    role: "assistant", content: "A", reasoning_content: "hmm",
    tool_calls: [{ id: "t1", type: "function", function: { name: "f", arguments: '{"a":1}' } }],
  });
  assert.equal(answer.finish, "tool_calls");
  assert.ok(seen >= 8 && answer.firstAt !== null);
  Object.assign(answer, { firstAt: 100, endedAt: 600 });
  assert.equal(answer.speed, 8);
});

test("failures are told in the service's words", async () => {
  const refused = new Response(JSON.stringify({ error: { message: "Too many.", code: "requests" } }), { status: 429 });
  await assert.rejects(read(refused, new Answer(), () => {}), (failure) => failure instanceof Refused && failure.code === "requests" && failure.status === 429);
  const broken = answered([chunk({ content: "A" }), `data: ${JSON.stringify({ error: { message: "Died." } })}\n\n`]);
  await assert.rejects(read(broken, new Answer(), () => {}), /Died\./);
  await assert.rejects(read(answered([chunk({ content: "A" })]), new Answer(), () => {}), /broke off/);
  await assert.rejects(read(new Response("<html>", { status: 502 }), new Answer(), () => {}), /status 502/);
});

test("a service that cannot be reached is no riddle", async () => {
  const nobody = "http://127.0.0.1:9/";
  await assert.rejects(reach(nobody), (failure) => failure instanceof Refused && /does not answer/.test(failure.message));
  await assert.rejects(reach(nobody, { signal: AbortSignal.abort() }), { name: "AbortError" });
  const body = new ReadableStream({ pull(controller) { controller.error(new TypeError("network error")); } });
  const cut = new Response(body, { headers: { "content-type": "text/event-stream" } });
  await assert.rejects(read(cut, new Answer(), () => {}), /broke off/);
});

test("a stream that has begun without a token says that it was accepted", async () => {
  const answer = new Answer();
  let told;
  await assert.rejects(read(answered([": ping\n"]), answer, () => { told = [answer.accepted, answer.firstAt]; }), /broke off/);
  assert.deepEqual(told, [true, null]);
});

test("paths take values, and say which are missing", () => {
  assert.equal(pathOf("/models/{id}", { id: "a/b c" }, {}), "/models/a/b%20c");
  assert.equal(pathOf("/models/{id}", { id: "" }, {}), "/models/{id}");
  assert.equal(pathOf("/models", {}, { q: "a&b", sort: "" }), "/models?q=a%26b");
});

test("code of a conversation in the other APIs", () => {
  const call = { id: "c", type: "function", function: { name: "f", arguments: '{"a":1}' } };
  const picture = { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } };
  const body = {
    model: "m", max_tokens: 9, stop: ["x"], reasoning_effort: "low", stream: true, stream_options: { include_usage: true }, top_k: 5,
    tools: [{ type: "function", function: { name: "f", parameters: { type: "object" } } }],
    tool_choice: { type: "function", function: { name: "f" } },
    response_format: { type: "json_schema", json_schema: { name: "answer", strict: true, schema: { type: "object" } } },
    messages: [
      { role: "system", content: "S" }, { role: "user", content: [{ type: "text", text: "T" }, picture] },
      { role: "assistant", content: "", reasoning_content: "R", tool_calls: [call] },
      { role: "tool", tool_call_id: "c", content: "2" }, { role: "user", content: "U" },
    ],
  };
  assert.deepEqual(translated(table, chat, body), body);
  assert.deepEqual(translated(table, responses, body), {
    model: "m", max_output_tokens: 9, stop: ["x"], reasoning: { effort: "low" }, stream: true, top_k: 5,
    tools: [{ type: "function", strict: false, name: "f", parameters: { type: "object" } }],
    tool_choice: { type: "function", name: "f" },
    text: { format: { type: "json_schema", name: "answer", strict: true, schema: { type: "object" } } },
    input: [
      { role: "system", content: "S" },
      { role: "user", content: [{ type: "input_text", text: "T" }, { type: "input_image", image_url: picture.image_url.url }] },
      { type: "reasoning", summary: [], content: [{ type: "reasoning_text", text: "R" }] },
      { type: "function_call", call_id: "c", name: "f", arguments: '{"a":1}' },
      { type: "function_call_output", call_id: "c", output: "2" }, { role: "user", content: "U" },
    ],
  });
  assert.deepEqual(translated(table, messages, body), {
    model: "m", max_tokens: 9, stop_sequences: ["x"], stream: true, top_k: 5, system: "S",
    output_config: { effort: "low", format: { type: "json_schema", schema: { type: "object" } } },
    tools: [{ name: "f", input_schema: { type: "object" } }], tool_choice: { type: "tool", name: "f" },
    messages: [
      { role: "user", content: [{ type: "text", text: "T" }, { type: "image", source: { type: "base64", media_type: "image/png", data: "AAAA" } }] },
      { role: "assistant", content: [{ type: "tool_use", id: "c", name: "f", input: { a: 1 } }] },
      { role: "user", content: [{ type: "tool_result", tool_use_id: "c", content: "2" }, { type: "text", text: "U" }] },
    ],
  });
  assert.equal(translated(table, messages, { model: "m", messages: [] }).max_tokens, 1024);
});

test("clients of Messages get a base URL that they complete", () => {
  const said = (base) => snippets(table, messages, base, { model: "m", messages: [] });
  assert.match(said("http://h/team/v1").python, /base_url="http:\/\/h\/team",/);
  assert.match(said("http://h/team").javascript, /^\/\/ .* does not end in \/v1/);
  assert.match(said("http://h/team").curl, /^curl http:\/\/h\/team\/messages /);
});

test("the code of a request that reads", () => {
  const keyed = codeOf(table, { url: "http://h/v1/models?q=1", keyed: true });
  assert.ok(keyed.curl.startsWith("curl 'http://h/v1/models?q=1' "));
  for (const text of Object.values(keyed)) assert.match(text, /CAUSERIE_API_KEY/);
  for (const text of Object.values(codeOf(table, { url: "http://h/health", keyed: false }))) {
    assert.ok(text.includes("http://h/health") && !text.includes("API_KEY"));
  }
  const sent = { url: "http://h/v1/rerank", base: "http://h/v1", path: "/rerank", keyed: true, body: { model: "m's", n: null } };
  const code = codeOf(table, sent);
  assert.deepEqual(JSON.parse(/-d '([\s\S]*)'$/.exec(code.curl)[1].replaceAll("'\\''", "'")), sent.body);
  assert.match(code.python, /urlopen\(Request\("http:\/\/h\/v1\/rerank", body, headers=headers\)\)/);
  assert.match(code.javascript, /method: "POST",/);
  assert.match(codeOf(table, { ...sent, path: "/responses" }).python, /client\.responses\.create/);
});
