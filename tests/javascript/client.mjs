// What a user of the official client would write; prints what came back as one line of JSON.
import OpenAI from "openai";

const { baseURL, apiKey, model } = JSON.parse(process.argv[2]);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const messages = [{ role: "user", content: "Say hello." }];
const said = {};

const models = [];
for await (const one of client.models.list()) models.push(one.id);
said.models = models;

const whole = await client.chat.completions.create({ model, messages, max_tokens: 100, temperature: 0 });
said.whole = {
  content: whole.choices[0].message.content,
  finish: whole.choices[0].finish_reason,
  usage: whole.usage,
  object: whole.object,
};

const stream = await client.chat.completions.create({
  model,
  messages,
  max_tokens: 100,
  temperature: 0,
  stream: true,
  stream_options: { include_usage: true },
});
said.stream = { id: new Set(), content: "", finish: null, usage: null };
for await (const chunk of stream) {
  said.stream.id.add(chunk.id);
  said.stream.content += chunk.choices[0]?.delta?.content ?? "";
  said.stream.finish = chunk.choices[0]?.finish_reason ?? said.stream.finish;
  said.stream.usage = chunk.usage ?? said.stream.usage;
}
said.stream.id = said.stream.id.size;

const gathered = client.chat.completions.stream({ model, messages, max_tokens: 100, temperature: 0 });
said.gathered = (await gathered.finalChatCompletion()).choices[0].message.content;

try {
  await client.chat.completions.create({ model: "no-such-model", messages });
} catch (error) {
  said.error = { status: error.status, code: error.code, type: error.constructor.name };
}
console.log(JSON.stringify(said));
