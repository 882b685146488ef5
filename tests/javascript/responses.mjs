// What a user of the official client would write; prints what came back as one line of JSON.
import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const { baseURL } = JSON.parse(process.argv[2]);
const client = new OpenAI({ baseURL, apiKey: "placeholder", maxRetries: 0 });
const tools = [
  { type: "function", name: "weather", parameters: { type: "object" }, strict: false },
  { type: "custom", name: "patch" },
];
const said = {};

const stream = client.responses.stream({
  model: "m",
  input: "Hi",
  tools,
  reasoning: { summary: "auto" },
});
said.types = [];
for await (const event of stream) said.types.push(event.type);
const final = await stream.finalResponse();
said.items = final.output.map((item) => item.type);
said.text = final.output_text;
said.input = final.output.find((item) => item.type === "custom_tool_call")?.input;

const City = z.object({ city: z.string() });
const parsed = await client.responses.parse({
  model: "m",
  input: "Which city?",
  text: { format: zodTextFormat(City, "city") },
});
said.parsed = parsed.output_parsed;
console.log(JSON.stringify(said));
