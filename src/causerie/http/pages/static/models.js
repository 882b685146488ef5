// Models as choices, and what each can do in a few words.

const WORDS = { tools: "tools", response_format: "structured output" };
const CLAIMS = { ...WORDS, reasoning: "thinking", reasoning_effort: "thinking" };

export function takesImages(entry) {
  return Boolean(entry?.architecture?.input_modalities?.includes("image"));
}

/** Whether a model may take pictures: nobody knows before its first load. */
export function mayTakeImages(entry) {
  return takesImages(entry) || entry?.architecture?.evidence === "unknown";
}

/** Whether a model goes on with a message that has begun. */
export function continues(entry) {
  return Boolean(entry && measured(entry) && entry.supported_parameters?.includes("continue_final_message"));
}

/** Whether a model is in memory, as the list says it; one that is not loads at its first request. */
export function isLoaded(entry) {
  return entry.loaded ?? thinks(entry) !== "maybe";
}

/** Whether a model is in memory, in words, where the list says it. */
function loadWords({ loaded }) {
  return loaded === undefined ? [] : [loaded ? "loaded" : "loads when asked"];
}

/** What a model can do, in words: as measured, as its provider claims, or that nobody knows. */
function abilityWords(entry) {
  const of = (names, words) => [...new Set(Object.keys(words).filter((name) => names.includes(name)).map((name) => words[name]))];
  const found = of(entry.supported_parameters || [], WORDS);
  if (thinks(entry) === "yes") found.push("thinking");
  const { evidence } = entry.architecture || {};
  if (takesImages(entry) && evidence !== "claimed") found.push("images");
  const claimed = of(entry.claimed_parameters || [], CLAIMS).filter((word) => !found.includes(word));
  if (takesImages(entry) && evidence === "claimed") claimed.push("images");
  if (claimed.length) found.push(`claimed: ${claimed.join(", ")}`);
  if (entry.evidence === "unknown" && !found.length) found.push("abilities not known");
  return found;
}

/** What some tokens cost in dollars at the prices of an option; null where they are not known. */
export function costOf(usage, option) {
  if (!option?.dataset.price || !usage) return null;
  const [input, output] = option.dataset.price.split(" ").map(Number);
  return (usage.prompt_tokens * input + usage.completion_tokens * output) / 1e6;
}

/** What a model can do, and how much it reads at once. */
export function abilities(entry) {
  const found = [...loadWords(entry), ...abilityWords(entry)];
  const context = entry.context_length;
  return context ? [...found, `${new Intl.NumberFormat("en").format(context)} tokens of context`] : found;
}

/** Whether requests are checked against its parameters; a list of another service says nothing of it. */
export function measured(entry) {
  return (entry.evidence ?? "measured") === "measured";
}

/** Whether a model thinks: yes, no, or maybe, before it has been loaded. */
export function thinks(entry) {
  if (!entry.reasoning) return "no";
  if (entry.reasoning.supported_efforts === null) return "maybe";
  return entry.reasoning.supported_efforts?.length ? "yes" : "no";
}

/** An option that says which settings its model has; `Settings.follow` reads it. */
export function option(entry) {
  const made = new Option(entry.id, entry.id);
  made.dataset.parameters = measured(entry) ? (entry.supported_parameters || []).join(" ") : "";
  made.dataset.abilities = [...loadWords(entry), ...abilityWords(entry)].join(", ");
  made.dataset.thinks = thinks(entry);
  made.dataset.efforts = (entry.reasoning?.supported_efforts || []).join(" ");
  made.dataset.must = entry.reasoning?.mandatory ? "yes" : "no";
  made.dataset.defaults = JSON.stringify(entry.default_parameters || {});
  return made;
}
