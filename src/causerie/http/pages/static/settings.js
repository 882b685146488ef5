// The settings of the playground: what they make of a request, and which of them a model has.

/** A field that cannot be sent as it is. */
export class Wrong extends Error {
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

export class Settings {
  constructor(form) {
    this.form = form;
    form.addEventListener("input", () => this.follow());
  }

  get model() {
    return this.form.elements.model?.value || "";
  }

  system() {
    return this.text("system");
  }

  text(name) {
    return this.form.elements[name].value.trim();
  }

  chosen(name) {
    return this.form.querySelector(`[name="${name}"]:checked`)?.value || "";
  }

  /** Everything of the request but its messages; raises Wrong. */
  request() {
    const body = { model: this.model };
    for (const field of this.form.querySelectorAll("[data-number]")) {
      if (field.disabled || field.value === "") continue;
      if (!field.checkValidity()) throw new Wrong(field.name, field.validationMessage);
      body[field.name] = field.valueAsNumber;
    }
    const stops = this.form.elements.stop;
    const lines = stops.value.split("\n").filter(Boolean);
    if (!stops.disabled && lines.length) body.stop = lines;
    return { ...body, ...this.thinking(), ...this.tools(), ...this.format(), ...this.providers() };
  }

  /** Preferences among the providers of a model of the catalog; other pages and models have none. */
  providers() {
    const { provider_sort: sort, provider_only: only, provider_strict: strict, model } = this.form.elements;
    if (!sort || !model.selectedOptions[0]?.matches("[data-routed]")) return {};
    const names = only.value.split(",").map((each) => each.trim()).filter(Boolean);
    const provider = { ...(sort.value && { sort: sort.value }), ...(names.length && { only: names }), ...(strict.checked && { allow_fallbacks: false }) };
    return Object.keys(provider).length ? { provider } : {};
  }

  thinking() {
    const field = this.form.elements.effort;
    const said = this.chosen("thinking");
    if (this.off("thinking")) return {};
    const body = said ? { chat_template_kwargs: { enable_thinking: said === "on" } } : {};
    if (said !== "off" && !field.disabled && field.value) body.reasoning_effort = field.value;
    return body;
  }

  tools() {
    if (this.off("tools") || !this.text("tools")) return {};
    const tools = this.json("tools");
    if (!Array.isArray(tools)) throw new Wrong("tools", "Tools are a list: [ … ].");
    if (tools.length === 0) return {};
    const choice = this.text("tool_choice");
    if (choice === "auto") return { tools };
    const named = { type: "function", function: { name: choice.slice(5) } };
    return { tools, tool_choice: choice.startsWith("name:") ? named : choice };
  }

  format() {
    const kind = this.chosen("format");
    if (this.off("format") || !kind || kind === "text") return {};
    if (kind === "json_object") return { response_format: { type: kind } };
    const schema = this.json("schema");
    return { response_format: { type: kind, json_schema: { name: "answer", strict: true, schema } } };
  }

  /** The schema that the answer has to fit; null where none was asked for, true for any JSON. */
  wanted() {
    const kind = this.off("format") ? "" : this.chosen("format");
    if (kind === "json_schema") return this.json("schema");
    return kind === "json_object" ? { type: "object" } : null;
  }

  json(name) {
    try {
      return JSON.parse(this.text(name) || "null") ?? {};
    } catch (failure) {
      throw new Wrong(name, `This is not JSON: ${failure.message}`);
    }
  }

  off(part) {
    return this.form.querySelector(`[data-part="${part}"]`).disabled;
  }

  /** Show which settings the chosen model has, and what is wrong with what was typed. */
  follow() {
    const option = this.form.elements.model?.selectedOptions[0];
    if (!option) return;
    const known = option.dataset.parameters;
    const has = (name) => !known || known.split(" ").includes(name);
    for (const part of this.form.querySelectorAll("[data-needs]")) {
      const needs = part.dataset.needs.split(" ");
      const there = needs.some(has);
      part.disabled = !there;
      part.closest("[data-setting]")?.toggleAttribute("data-off", !there);
    }
    const defaults = JSON.parse(option.dataset.defaults);
    for (const field of this.form.querySelectorAll("[data-number]")) {
      field.placeholder = defaults[field.name] ?? field.dataset.unset;
    }
    this.offerThinking(option.dataset.thinks !== "no");
    this.efforts(option.dataset, has("reasoning_effort"));
    const routing = document.getElementById("routing");
    if (routing) routing.hidden = !option.matches("[data-routed]");
    const must = option.dataset.must === "yes";
    for (const radio of this.form.querySelectorAll('[name="thinking"]')) {
      radio.disabled = radio.value === "off" && must;
      if (radio.disabled && radio.checked) this.form.querySelector('[name="thinking"][value=""]').checked = true;
    }
    this.form.querySelector("[data-schema]").hidden = this.chosen("format") !== "json_schema";
    this.names();
    this.check("tools");
    this.check("schema");
  }

  /** A model that does not think has no choice; what was chosen for another one stays, unsent. */
  offerThinking(offered) {
    const part = this.form.querySelector('[data-part="thinking"]');
    part.hidden = !offered;
    if (!offered) part.disabled = true;
  }

  /** Until a model has been loaded, it may take any. */
  efforts({ efforts, thinks }, there) {
    const known = efforts.split(" ");
    const field = this.form.elements.effort;
    field.disabled = !there || this.chosen("thinking") === "off";
    for (const option of field.options) option.hidden = thinks === "yes" && Boolean(option.value) && !known.includes(option.value);
    if (field.selectedOptions[0]?.hidden) field.value = "";
  }

  /** The functions of the tools, as choices. */
  names() {
    const field = this.form.elements.tool_choice;
    let names = [];
    try {
      const tools = JSON.parse(this.text("tools") || "[]");
      names = tools.map((tool) => tool.function.name).filter((name) => typeof name === "string");
    } catch { /* said below the field */ }
    const shown = [...field.options].slice(3).map((option) => option.value.slice(5));
    if (names.join("\n") === shown.join("\n")) return;
    const chosen = field.value;
    while (field.options.length > 3) field.options[3].remove();
    for (const name of names) field.add(new Option(name, `name:${name}`));
    field.value = chosen;
    if (!field.value) field.value = "auto";
  }

  check(name) {
    try {
      if (this.text(name)) this.json(name);
      this.show(null, name);
    } catch (failure) {
      this.show(failure);
    }
  }

  /** Say what is wrong below its field, or that nothing is. */
  show(failure, name = failure.field) {
    const field = this.form.elements[name];
    const note = document.getElementById(`${name}-wrong`);
    field.toggleAttribute("aria-invalid", failure !== null);
    if (failure) field.setAttribute("aria-invalid", "true");
    if (note) {
      note.hidden = failure === null;
      note.textContent = failure ? failure.message : "";
    } else if (failure) {
      field.reportValidity();
    }
    if (failure && !field.closest("details")?.open) field.closest("details")?.setAttribute("open", "");
  }

  values() {
    return [...new FormData(this.form)].filter(([, value]) => typeof value === "string");
  }

  /** Put kept values back; a model that the address names wins. */
  fill(pairs, model) {
    for (const [name, value] of pairs) {
      if (name === "model" && model) continue;
      const field = this.form.elements.namedItem(name);
      if (!field) continue;
      if (field instanceof RadioNodeList) {
        for (const radio of field) radio.checked = radio.value === value;
      } else if (field.type === "checkbox") {
        field.checked = true; // a form leaves out those that are not
      } else if (!(field instanceof HTMLSelectElement) || [...field.options].some((each) => each.value === value)) {
        field.value = value;
      }
    }
  }
}
