// Conversations as files: to keep, to hand on, and to read back. Needs no page.

import { partsOf } from "./said.js";

const KIND = "causerie conversations";
const DEEPEST = 50; // versions within versions
const PICTURE = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/;

/** What is in a file that is no file of ours. */
export class NoConversations extends Error {}

export function toFile(conversations) {
  return JSON.stringify({ kind: KIND, version: 1, conversations }, null, 1);
}

/** The conversations of a file, checked piece by piece, since anybody may have written it. */
export function fromFile(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new NoConversations("The file is not JSON.");
  }
  if (file?.kind !== KIND || file.version !== 1 || !Array.isArray(file.conversations)) {
    throw new NoConversations("The file holds no conversations that this page has saved.");
  }
  return file.conversations.map(conversation);
}

function conversation(found) {
  const panes = list(found?.panes).slice(0, 2).map((pane) => list(pane).map((each) => turn(each)));
  const models = list(found.models).map(words);
  const settings = list(found.settings).map((pair) => [words(pair?.[0]), words(pair?.[1])]);
  return {
    title: words(found.title).slice(0, 200), created: moment(found.created), updated: moment(found.updated),
    panes: panes.length ? panes : [[]], models, settings,
  };
}

function turn(found, depth = 0) {
  const { tails, nth } = found?.versions ?? {};
  if (!tails) return message(found);
  if (depth > DEEPEST || !Number.isInteger(nth) || !(nth in list(tails))) throw broken();
  const others = tails.map((tail, index) => (index === nth ? null : list(tail).map((each) => turn(each, depth + 1))));
  if (others.some((tail) => tail?.length === 0)) throw broken();
  return { ...message(found), versions: { tails: others, nth } };
}

function message(found) {
  if (found?.said !== undefined) {
    const { said: text, files } = partsOf(found);
    return { said: words(text), files: list(files).map(file) };
  }
  const { message: said, finish, usage, firstAt, thoughtAt, endedAt } = record(found?.answer);
  return {
    model: words(found.model), schema: found.schema ?? null, stopped: found.stopped === true,
    results: Array.isArray(found.results) ? found.results.map(words) : null,
    answer: {
      message: reply(record(said)), finish: typeof finish === "string" ? finish : null, usage: counts(usage),
      firstAt: number(firstAt), thoughtAt: number(thoughtAt), endedAt: number(endedAt), id: "",
    },
  };
}

function reply(message) {
  const made = { role: "assistant", content: words(message.content) };
  if (message.reasoning_content) made.reasoning_content = words(message.reasoning_content);
  if (message.tool_calls) {
    made.tool_calls = list(message.tool_calls).map((call) => {
      const { name, arguments: given } = record(call?.function);
      return { id: words(call.id), type: "function", function: { name: words(name), arguments: words(given) } };
    });
  }
  return made;
}

function file({ name, text, url }) {
  if (text !== undefined) return { name: words(name), text: words(text) };
  if (typeof url !== "string" || !PICTURE.test(url)) throw broken();
  return { name: words(name), url };
}

function counts(usage) {
  if (!usage) return null;
  return { prompt_tokens: number(usage.prompt_tokens) ?? 0, completion_tokens: number(usage.completion_tokens) ?? 0 };
}

const broken = () => new NoConversations("The file is damaged: a part of a conversation is missing.");

function words(found) {
  if (typeof found !== "string") throw broken();
  return found;
}

function list(found) {
  if (!Array.isArray(found)) throw broken();
  return found;
}

function record(found) {
  if (typeof found !== "object" || found === null) throw broken();
  return found;
}

const number = (found) => (Number.isFinite(found) ? found : null);
const moment = (found) => number(found) ?? Date.now();

/** A conversation as people read it. */
export function toMarkdown({ title, panes }) {
  const parts = [`# ${title}`];
  for (const pane of panes) {
    for (const each of pane) {
      if (each.said !== undefined) parts.push("## You", said(each));
      else parts.push(`## ${each.model}`, each.answer.message.content, ...calls(each));
    }
  }
  return `${parts.join("\n\n")}\n`;
}

function said({ said: text, files = [] }) {
  return [...files.map(({ name }) => `(${name})`), text].join("\n\n");
}

function calls({ answer, results }) {
  return (answer.message.tool_calls || []).flatMap((call, index) => [
    `Call of \`${call.function.name}\`:`, `\`\`\`json\n${call.function.arguments}\n\`\`\``,
    ...(results ? [`Result: ${results[index]}`] : []),
  ]);
}
