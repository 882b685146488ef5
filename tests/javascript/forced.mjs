// Forced calls by the official client, plain and gathered from a stream; prints them as JSON.
import OpenAI from "openai";

const { baseURL, model, tools, choices } = JSON.parse(process.argv[2]);
const client = new OpenAI({ baseURL, apiKey: "placeholder", maxRetries: 0 });
const messages = [{ role: "user", content: "How is the weather in Paris?" }];
const said = [];
for (const tool_choice of choices) {
  const request = { model, messages, tools, tool_choice, temperature: 0, max_tokens: 200 };
  const whole = await client.chat.completions.create(request);
  const streamed = await client.chat.completions.stream(request).finalChatCompletion();
  for (const { finish_reason, message } of [whole.choices[0], streamed.choices[0]])
    said.push({ finish: finish_reason, calls: message.tool_calls });
}
console.log(JSON.stringify(said));
