// What users of the well-known router's own clients would write, with another base URL;
// prints what came back as one line of JSON.
import { OpenRouter } from "@openrouter/sdk";
import { createOpenRouter } from "@openrouter/ai-sdk-provider";
import { generateObject, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";

const { baseURL, apiKey, model } = JSON.parse(process.argv[2]);
const question = [{ role: "user", content: "What is six times seven?" }];
const schema = {
  type: "object",
  properties: { answer: { type: "integer" } },
  required: ["answer"],
  additionalProperties: false,
};
const parameters = {
  type: "object",
  properties: { a: { type: "integer" }, b: { type: "integer" } },
  required: ["a", "b"],
};
const definition = { type: "function", function: { name: "multiply", parameters } };

const sayings = { sdk, provider, openai };
const said = {};
for (const [name, say] of Object.entries(sayings)) said[name] = await say();
console.log(JSON.stringify(said));

async function sdk() {
  const client = new OpenRouter({ serverURL: baseURL, apiKey, retryConfig: { strategy: "none" } });
  const ask = (more) => client.chat.send({ chatRequest: { model, messages: question, ...more } });
  const found = {};
  const pages = await client.models.list();
  found.models = [];
  for await (const page of pages) found.models.push(...page.result.data.map((one) => one.id));
  const [author, slug] = model.split("/");
  found.endpoints = (await client.endpoints.list({ author, slug })).data.endpoints.map((one) => one.providerName);
  found.count = (await client.models.count()).data.count;

  const whole = await ask({ reasoning: { effort: "low", summary: "auto" } });
  const message = whole.choices[0].message;
  found.whole = { ...message, usage: whole.usage.totalTokens, finish: whole.choices[0].finishReason };

  const stream = await ask({ stream: true, streamOptions: { includeUsage: true }, reasoning: { effort: "low" } });
  found.stream = { content: "", reasoning: "", details: [], finish: null, usage: null };
  for await (const chunk of stream) {
    const choice = chunk.choices[0];
    found.stream.content += choice?.delta.content ?? "";
    found.stream.reasoning += choice?.delta.reasoning ?? "";
    found.stream.details.push(...(choice?.delta.reasoningDetails ?? []));
    found.stream.finish = choice?.finishReason ?? found.stream.finish;
    found.stream.usage = chunk.usage?.totalTokens ?? found.stream.usage;
  }

  const called = (await ask({ tools: [definition] })).choices[0];
  const call = called.message.toolCalls[0];
  found.call = { name: call.function.name, arguments: call.function.arguments, finish: called.finishReason };
  const result = { role: "tool", toolCallId: call.id, content: "42" };
  const after = await ask({ tools: [definition], messages: [...question, called.message, result] });
  found.after = after.choices[0].message.content;

  const shaped = await ask({
    responseFormat: { type: "json_schema", jsonSchema: { name: "answer", strict: true, schema } },
  });
  found.shaped = shaped.choices[0].message.content;

  found.errors = {};
  const wrong = {
    model: () => ask({ model: "nobody/nothing" }),
    value: () => ask({ temperature: 9 }),
    key: () => new OpenRouter({ serverURL: baseURL, apiKey: "sk-wrong" }).chat.send({ chatRequest: { model, messages: question } }),
    stream: async () => {
      const broken = await ask({ stream: true, messages: [{ role: "user", content: "Break." }] });
      for await (const chunk of broken) if (chunk.error) throw chunk.error;
    },
  };
  for (const [name, act] of Object.entries(wrong)) {
    try {
      await act();
    } catch (error) {
      found.errors[name] = {
        type: error.constructor.name,
        status: error.statusCode,
        code: error.error?.code ?? error.code,
        kind: error.metadata?.errorType,
        message: error.error?.message ?? error.message,
      };
    }
  }
  return found;
}

async function provider() {
  const router = createOpenRouter({ baseURL, apiKey, compatibility: "strict" });
  const thinker = router.chat(model, { reasoning: { effort: "low" } });
  const found = {};
  const multiply = tool({
    inputSchema: jsonSchema(parameters),
    execute: async ({ a, b }) => String(a * b),
  });

  const whole = await generateText({ model: thinker, prompt: question[0].content, maxRetries: 0 });
  found.whole = { content: whole.text, reasoning: whole.reasoningText, usage: whole.usage.totalTokens };

  const stream = streamText({ model: thinker, prompt: question[0].content, maxRetries: 0 });
  found.stream = { content: "", reasoning: "" };
  for await (const part of stream.fullStream) {
    if (part.type === "text-delta") found.stream.content += part.text;
    if (part.type === "reasoning-delta") found.stream.reasoning += part.text;
    if (part.type === "error") throw part.error;
  }
  found.stream.usage = (await stream.usage).totalTokens;

  const acted = await generateText({
    model: thinker,
    prompt: question[0].content,
    tools: { multiply },
    stopWhen: stepCountIs(3),
    maxRetries: 0,
  });
  found.after = acted.text;
  found.steps = acted.steps.length;

  const streamed = streamText({
    model: thinker,
    prompt: question[0].content,
    tools: { multiply },
    stopWhen: stepCountIs(3),
    maxRetries: 0,
  });
  found.afterStream = await streamed.text;

  found.shaped = (await generateObject({ model: thinker, prompt: "?", schema: jsonSchema(schema), maxRetries: 0 })).object;

  try {
    await generateText({ model: router.chat("nobody/nothing"), prompt: "?", maxRetries: 0 });
  } catch (error) {
    found.error = { type: error.name, status: error.statusCode, message: error.message };
  }
  return found;
}

async function openai() {
  const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
  const found = { models: [] };
  for await (const one of client.models.list()) found.models.push(one.id);
  const whole = await client.chat.completions.create({ model, messages: question, reasoning_effort: "low" });
  found.whole = whole.choices[0].message;
  const gathered = client.chat.completions.stream({ model, messages: question, tools: [definition] });
  found.call = (await gathered.finalChatCompletion()).choices[0].message.tool_calls[0].function;
  const shaped = await client.chat.completions.parse({
    model,
    messages: question,
    response_format: { type: "json_schema", json_schema: { name: "answer", strict: true, schema } },
  });
  found.shaped = shaped.choices[0].message.content;
  try {
    await client.chat.completions.create({ model: "nobody/nothing", messages: question });
  } catch (error) {
    found.error = { status: error.status, code: error.code, type: error.constructor.name };
  }
  return found;
}
