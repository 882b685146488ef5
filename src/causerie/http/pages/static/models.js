// Models as choices, and what each can do in a few words.

const WORDS = { tools: "tools", response_format: "structured output" };

export function takesImages(entry) {
  return Boolean(entry?.architecture?.input_modalities?.includes("image"));
}

/** What a model with these parameters can do, in words. */
export function abilityWords(parameters, thinks) {
  const words = Object.keys(WORDS).filter((name) => parameters.includes(name)).map((name) => WORDS[name]);
  return thinks === "yes" ? [...words, "thinking"] : words;
}

/** The context of a model and what a million tokens cost, as its option says. */
export function terms({ context, price }) {
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  const [input, output] = (price ?? "").split(" ").map(Number);
  const dollars = (amount) => `$${Number(amount.toPrecision(3))}`;
  const costs = price ? [input || output ? `${dollars(input)} input, ${dollars(output)} output per 1M` : "free"] : [];
  return [...(context ? [`${short.format(context)} context`] : []), ...costs];
}

/** What some tokens cost in dollars at the prices of an option; null where they are not known. */
export function costOf(usage, option) {
  if (!option?.dataset.price || !usage) return null;
  const [input, output] = option.dataset.price.split(" ").map(Number);
  return (usage.prompt_tokens * input + usage.completion_tokens * output) / 1e6;
}

/** What a model can do, and how much it reads at once. */
export function abilities(entry) {
  const found = abilityWords(entry.supported_parameters || [], thinks(entry));
  if (takesImages(entry)) found.push("images");
  const context = entry.context_length;
  return context ? [...found, `${new Intl.NumberFormat("en").format(context)} tokens of context`] : found;
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
  made.dataset.parameters = (entry.supported_parameters || []).join(" ");
  made.dataset.thinks = thinks(entry);
  made.dataset.efforts = (entry.reasoning?.supported_efforts || []).join(" ");
  made.dataset.must = entry.reasoning?.mandatory ? "yes" : "no";
  made.dataset.defaults = JSON.stringify(entry.default_parameters || {});
  return made;
}
