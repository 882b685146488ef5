// Stream an answer, let the model call a function, and read an answer as an object.
import OpenAI from "openai";

const client = new OpenAI(); // OPENAI_BASE_URL and OPENAI_API_KEY say where and who
const model = (await client.models.list()).data[0].id;

async function stream() {
  const chunks = await client.chat.completions.create({
    model,
    messages: [{ role: "user", content: "Say hello." }],
    max_tokens: 40,
    stream: true,
    stream_options: { include_usage: true },
  });
  process.stdout.write("stream: ");
  for await (const chunk of chunks) {
    process.stdout.write(chunk.choices[0]?.delta?.content ?? "");
    if (chunk.usage) console.log(`\n${chunk.usage.completion_tokens} tokens`);
  }
}

async function tools() {
  const weather = {
    type: "function",
    function: {
      name: "get_weather",
      description: "The weather of a city now.",
      parameters: {
        type: "object",
        properties: { city: { enum: ["Paris", "Oslo"] } },
        required: ["city"],
        additionalProperties: false,
      },
    },
  };
  const messages = [{ role: "user", content: "What is the weather in Oslo?" }];
  const first = await client.chat.completions.create({
    model,
    messages,
    tools: [weather],
    tool_choice: "required",
    max_tokens: 100,
  });
  const { message } = first.choices[0];
  messages.push(message);
  for (const call of message.tool_calls ?? []) {
    console.log(`call: ${call.function.name} ${call.function.arguments}`);
    messages.push({ role: "tool", tool_call_id: call.id, content: "sunny, 21 °C" });
  }
  const second = await client.chat.completions.create({ model, messages, max_tokens: 40 });
  console.log(`answer: ${second.choices[0].message.content}`);
}

async function structured() {
  const schema = {
    type: "object",
    properties: {
      name: { type: "string", maxLength: 20 },
      age: { type: "integer", minimum: 0, maximum: 40 },
    },
    required: ["name", "age"],
    additionalProperties: false,
  };
  const answer = await client.chat.completions.create({
    model,
    messages: [{ role: "user", content: "A cat called Tom, three years old." }],
    response_format: { type: "json_schema", json_schema: { name: "cat", schema, strict: true } },
    max_tokens: 100,
  });
  console.log("object:", JSON.parse(answer.choices[0].message.content));
}

await stream();
await tools();
await structured();
