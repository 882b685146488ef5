// What users of both official clients would write, at each door and API; prints one line of JSON.
import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const { root, targets } = JSON.parse(process.argv[2]);
const Place = z.object({ city: z.enum(["Paris"]) });
const schema = { type: "object", properties: { city: { enum: ["Paris"] } }, required: ["city"], additionalProperties: false };
const question = { role: "user", content: "Does it rain in Paris?" };
const openai = (path, apiKey) => new OpenAI({ baseURL: `${root}${path}/v1`, apiKey, maxRetries: 0 });
const anthropic = (path, apiKey) => new Anthropic({ baseURL: root + path, apiKey, maxRetries: 0 });

async function chat(client, model) {
  const stranger = client.withOptions({ apiKey: "wrong" });
  const { completions } = client.chat;
  const asked = { model, messages: [question] };
  const whole = await completions.create(asked);
  const gathered = completions.stream({ ...asked, stream_options: { include_usage: true } });
  const stream = await gathered.finalChatCompletion();
  const tool = { type: "function", function: { name: "weather", parameters: schema } };
  const choice = { type: "function", function: { name: "weather" } };
  const first = await completions.create({ ...asked, tools: [tool], tool_choice: choice });
  const { message } = first.choices[0];
  const [call] = message.tool_calls;
  const result = { role: "tool", tool_call_id: call.id, content: "Rain." };
  const second = await completions.create({ ...asked, messages: [question, message, result], tools: [tool] });
  const parsed = await completions.parse({ ...asked, response_format: zodResponseFormat(Place, "place") });
  return {
    whole: whole.choices[0].message.content,
    stream: stream.choices[0].message.content,
    counted: whole.usage.total_tokens === stream.usage.total_tokens,
    call: JSON.parse(call.function.arguments),
    after: second.choices[0].message.content,
    parsed: parsed.choices[0].message.parsed,
    unknown: await refused(() => completions.create({ ...asked, model: "nobody" })),
    denied: await refused(() => stranger.chat.completions.create(asked)),
  };
}

async function responses(client, model) {
  const stranger = client.withOptions({ apiKey: "wrong" });
  const asked = { model, input: [question] };
  const whole = await client.responses.create(asked);
  const stream = await client.responses.stream(asked).finalResponse();
  const tool = { type: "function", name: "weather", parameters: schema, strict: true };
  const choice = { type: "function", name: "weather" };
  const first = await client.responses.create({ ...asked, tools: [tool], tool_choice: choice });
  const call = first.output.find((item) => item.type === "function_call");
  const result = { type: "function_call_output", call_id: call.call_id, output: "Rain." };
  const second = await client.responses.create({ ...asked, input: [question, ...first.output, result], tools: [tool] });
  const parsed = await client.responses.parse({ ...asked, text: { format: zodTextFormat(Place, "place") } });
  return {
    whole: whole.output_text,
    stream: stream.output_text,
    counted: whole.usage.total_tokens === stream.usage.total_tokens,
    call: JSON.parse(call.arguments),
    after: second.output_text,
    parsed: parsed.output_parsed,
    unknown: await refused(() => client.responses.create({ ...asked, model: "nobody" })),
    denied: await refused(() => stranger.responses.create(asked)),
  };
}

async function messages(client, model) {
  const stranger = client.withOptions({ apiKey: "wrong" });
  const asked = { model, max_tokens: 200, messages: [question] };
  const words = (message) => message.content.at(-1).text;
  const whole = await client.messages.create(asked);
  const stream = await client.messages.stream(asked).finalMessage();
  const tools = [{ name: "weather", input_schema: schema }];
  const choice = { type: "tool", name: "weather" };
  const first = await client.messages.create({ ...asked, tools, tool_choice: choice });
  const call = first.content.find((block) => block.type === "tool_use");
  const result = { role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: "Rain." }] };
  const turns = [question, { role: "assistant", content: first.content }, result];
  const second = await client.messages.create({ ...asked, messages: turns, tools });
  const parsed = await client.messages.parse({ ...asked, output_config: { format: zodOutputFormat(Place) } });
  return {
    whole: words(whole),
    stream: words(stream),
    counted: whole.usage.output_tokens === stream.usage.output_tokens,
    call: call.input,
    after: words(second),
    parsed: parsed.parsed_output,
    unknown: await refused(() => client.messages.create({ ...asked, model: "nobody" })),
    denied: await refused(() => stranger.messages.create(asked)),
  };
}

async function refused(ask) {
  try {
    await ask();
  } catch (error) {
    return error.constructor.name;
  }
}

const said = {};
for (const { door, path, key, model } of targets) {
  said[door] = {
    chat: await chat(openai(path, key), model),
    responses: await responses(openai(path, key), model),
    messages: await messages(anthropic(path, key), model),
  };
}
console.log(JSON.stringify(said));
