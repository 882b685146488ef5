// One answer as it streams in: reads the events, puts the message together, keeps the time.

const SHORTEST = 0.05; // seconds; below that a speed says nothing

/** A failure in the service's own words; `status` is 0 where no answer came. */
export class Refused extends Error {
  constructor(error, status) {
    super(error.message || "The request failed.");
    this.code = error.code || "";
    this.param = error.param || "";
    this.status = status;
  }
}

/** The message so far, its end and its usage. Times are in milliseconds since it was asked. */
export class Answer {
  constructor(now = () => performance.now()) {
    this.now = now;
    this.asked = now();
    this.message = { role: "assistant", content: "" };
    this.finish = null;
    this.usage = null;
    this.id = "";
    this.accepted = false; // the stream has begun, maybe before its first token
    this.firstAt = null;
    this.thoughtAt = null; // when the reasoning was over
    this.endedAt = null;
  }

  feed(chunk) {
    if (chunk.error) throw new Refused(chunk.error, 200);
    this.id = chunk.id || this.id;
    if (chunk.usage) this.usage = chunk.usage;
    for (const choice of chunk.choices || []) {
      if (choice.index) continue;
      if (choice.finish_reason) this.finish = choice.finish_reason;
      this.add(choice.delta || {});
    }
  }

  add(delta) {
    const calls = delta.tool_calls || [];
    const thought = delta.reasoning_content || delta.reasoning;
    if (!thought && !delta.content && calls.length === 0) return;
    if (this.firstAt === null) this.firstAt = this.now() - this.asked;
    const message = this.message;
    if (thought) message.reasoning_content = (message.reasoning_content || "") + thought;
    else if (this.thoughtAt === null) this.thoughtAt = this.now() - this.asked;
    if (delta.content) message.content += delta.content;
    for (const call of calls) this.addCall(call);
  }

  addCall(piece) {
    const calls = (this.message.tool_calls ||= []);
    const call = (calls[piece.index] ||= {
      id: "", type: "function", function: { name: "", arguments: "" },
    });
    if (piece.id) call.id = piece.id;
    if (piece.function?.name) call.function.name += piece.function.name;
    if (piece.function?.arguments) call.function.arguments += piece.function.arguments;
  }

  end() {
    this.endedAt = this.now() - this.asked;
    if (this.message.tool_calls) this.message.tool_calls = this.message.tool_calls.filter(Boolean);
  }

  /** Tokens per second after the first one; null where that says nothing. */
  get speed() {
    const tokens = this.usage?.completion_tokens;
    const seconds = (this.endedAt - this.firstAt) / 1000;
    return tokens > 1 && this.firstAt !== null && seconds > SHORTEST ? (tokens - 1) / seconds : null;
  }
}

/** As fetch; where no response came, it says so in words for a person. */
export async function reach(url, options) {
  try {
    return await fetch(url, options);
  } catch (failure) {
    if (failure.name === "AbortError") throw failure;
    const why = globalThis.navigator?.onLine === false
      ? "This device is not connected to a network."
      : `The service${place(url)} does not answer: it may have stopped, or the network is interrupted.`;
    throw new Refused({ message: `${why} Try again.` }, 0);
  }
}

/** Where a person would look for the service. */
function place(url) {
  return globalThis.location ? ` at ${new URL(url, location.href).host}` : "";
}

const BROKEN = "The connection broke off before the answer was complete.";

/** Feed an answer from a response; calls `seen` after every piece that arrived. */
export async function read(response, answer, seen) {
  if (!response.ok) throw new Refused(await errorOf(response), response.status);
  const type = response.headers.get("content-type") || "";
  if (!type.includes("text/event-stream")) {
    whole(await response.json(), answer);
    seen();
    return;
  }
  answer.accepted = true;
  seen();
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    answer.feed(JSON.parse(data));
    seen();
  }
  throw new Refused({ message: BROKEN }, 0);
}

/** The error in the body of a refusal. */
export async function errorOf(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error || {};
  } catch {
    return { message: `The service answered with status ${response.status}.` };
  }
}

function whole(completion, answer) {
  const [choice] = completion.choices;
  answer.id = completion.id;
  answer.usage = completion.usage;
  answer.finish = choice.finish_reason;
  answer.firstAt = answer.now() - answer.asked;
  answer.message = choice.message;
  answer.message.content ??= "";
}

/** The data of each event of a stream of bytes. Lines end with LF, CRLF or CR. */
export async function* events(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch((failure) => {
        throw failure.name === "AbortError" ? failure : new Refused({ message: BROKEN }, 0);
      });
      rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith("data:")) yield line.slice(5).replace(/^ /, "");
      }
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
