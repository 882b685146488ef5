// What a user of the official client of the Messages API would write; prints one line of JSON.
import Anthropic from "@anthropic-ai/sdk";

const { baseURL, model } = JSON.parse(process.argv[2]);
const client = new Anthropic({ baseURL, apiKey: "placeholder", maxRetries: 0 });
const asked = { model, max_tokens: 100, messages: [{ role: "user", content: "Say hello." }] };
const said = {};

const whole = await client.messages.create(asked);
said.whole = { text: whole.content.at(-1).text, reason: whole.stop_reason, usage: whole.usage };

const stream = client.messages.stream(asked);
const events = [];
stream.on("streamEvent", (event) => events.push(event.type));
const gathered = await stream.finalMessage();
said.stream = { text: gathered.content.at(-1).text, reason: gathered.stop_reason, usage: gathered.usage };
said.events = [events[0], events.at(-1)];

const counted = await client.messages.countTokens({ model, messages: asked.messages });
said.counted = counted.input_tokens;

try {
  await client.messages.create({ ...asked, model: "no-such-model" });
} catch (error) {
  said.error = { status: error.status, type: error.error?.error?.type, name: error.constructor.name };
}
console.log(JSON.stringify(said));
