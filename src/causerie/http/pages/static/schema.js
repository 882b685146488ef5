// Whether a value is what a JSON Schema asks for, told in words for people. It runs in the browser,
// so that a costly pattern costs only whoever wrote it. Keywords that it does not know it names.

const KNOWN = new Set([
  "$schema", "$id", "$ref", "$defs", "definitions", "$comment", "title", "description", "default",
  "examples", "type", "enum", "const", "properties", "required", "additionalProperties",
  "patternProperties", "propertyNames", "minProperties", "maxProperties", "items", "prefixItems",
  "minItems", "maxItems", "uniqueItems", "contains", "minLength", "maxLength", "pattern", "minimum",
  "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "allOf", "anyOf", "oneOf", "not",
  "if", "then", "else",
]);
const DEEPEST = 64;

/** `problems`: where and what, none if the value fits; `unchecked`: keywords passed over. */
export function check(schema, value) {
  const run = { root: schema, problems: [], unchecked: new Set() };
  visit(run, schema, value, "", 0);
  return { problems: run.problems, unchecked: [...run.unchecked].sort() };
}

function fits(run, schema, value, at, depth) {
  const inner = { root: run.root, problems: [], unchecked: run.unchecked };
  visit(inner, schema, value, at, depth);
  return inner.problems.length === 0;
}

function visit(run, schema, value, at, depth) {
  const say = (text) => run.problems.push({ at: at || "/", text });
  if (schema === true || depth > DEEPEST) return;
  if (schema === false) {
    say("nothing is allowed here");
    return;
  }
  if (typeof schema !== "object" || schema === null || Array.isArray(schema)) return;
  for (const name of Object.keys(schema)) if (!KNOWN.has(name)) run.unchecked.add(name);
  if (typeof schema.$ref === "string") reference(run, schema.$ref, value, at, depth, say);
  general(schema, value, say);
  if (typeof value === "string") text(schema, value, say);
  if (typeof value === "number") number(schema, value, say);
  if (Array.isArray(value)) list(run, schema, value, at, depth, say);
  else if (value !== null && typeof value === "object") object(run, schema, value, at, depth, say);
  combined(run, schema, value, at, depth, say);
}

function reference(run, pointer, value, at, depth, say) {
  if (!pointer.startsWith("#")) {
    say(`refers to ${pointer}, which is elsewhere`);
    return;
  }
  let found = run.root;
  for (const step of pointer.slice(1).split("/").slice(1)) {
    const name = decodeURIComponent(step).replace(/~1/g, "/").replace(/~0/g, "~");
    found = found !== null && typeof found === "object" && Object.hasOwn(found, name)
      ? found[name] : undefined;
  }
  if (found === undefined) say(`refers to ${pointer}, which is not there`);
  else visit(run, found, value, at, depth + 1);
}

function kind(value) {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  if (Number.isInteger(value)) return "integer";
  return typeof value;
}

function general(schema, value, say) {
  if (schema.type !== undefined) {
    const wanted = [schema.type].flat();
    const is = kind(value);
    if (!wanted.includes(is) && !(is === "integer" && wanted.includes("number"))) {
      say(`is ${is}, not ${wanted.join(" or ")}`);
    }
  }
  if (Array.isArray(schema.enum) && !schema.enum.some((one) => same(one, value))) {
    say(`is not one of ${brief(schema.enum)}`);
  }
  if ("const" in schema && !same(schema.const, value)) say(`is not ${brief(schema.const)}`);
}

function text(schema, value, say) {
  const length = [...value].length;
  if (length < schema.minLength) say(`has ${length} characters, fewer than ${schema.minLength}`);
  if (length > schema.maxLength) say(`has ${length} characters, more than ${schema.maxLength}`);
  if (typeof schema.pattern === "string") {
    try {
      if (!new RegExp(schema.pattern, "u").test(value)) say(`does not match ${schema.pattern}`);
    } catch {
      say(`cannot be checked against the pattern ${schema.pattern}`);
    }
  }
}

function number(schema, value, say) {
  if (value < schema.minimum) say(`is less than ${schema.minimum}`);
  if (value > schema.maximum) say(`is more than ${schema.maximum}`);
  if (value <= schema.exclusiveMinimum) say(`is not more than ${schema.exclusiveMinimum}`);
  if (value >= schema.exclusiveMaximum) say(`is not less than ${schema.exclusiveMaximum}`);
  if (schema.multipleOf > 0) {
    const times = value / schema.multipleOf;
    if (Math.abs(times - Math.round(times)) > 1e-9) say(`is no multiple of ${schema.multipleOf}`);
  }
}

function list(run, schema, value, at, depth, say) {
  if (value.length < schema.minItems) say(`has ${value.length} items, fewer than ${schema.minItems}`);
  if (value.length > schema.maxItems) say(`has ${value.length} items, more than ${schema.maxItems}`);
  if (schema.uniqueItems === true) {
    const seen = new Set(value.map(canonical));
    if (seen.size < value.length) say("has the same item twice");
  }
  const first = Array.isArray(schema.prefixItems) ? schema.prefixItems : [];
  value.forEach((item, index) => {
    const inner = index < first.length ? first[index] : schema.items;
    if (inner !== undefined) visit(run, inner, item, `${at}/${index}`, depth + 1);
  });
  if (schema.contains !== undefined) {
    const any = value.some((item, index) => fits(run, schema.contains, item, `${at}/${index}`, depth + 1));
    if (!any) say("has no item as `contains` asks for");
  }
}

function object(run, schema, value, at, depth, say) {
  const names = Object.keys(value);
  for (const name of Array.isArray(schema.required) ? schema.required : []) {
    if (!Object.hasOwn(value, name)) say(`lacks ${brief(name)}`);
  }
  if (names.length < schema.minProperties) say(`has fewer than ${schema.minProperties} properties`);
  if (names.length > schema.maxProperties) say(`has more than ${schema.maxProperties} properties`);
  const own = schema.properties || {};
  const patterns = Object.entries(schema.patternProperties || {});
  for (const name of names) {
    const place = `${at}/${name.replace(/~/g, "~0").replace(/\//g, "~1")}`;
    const rules = patterns.filter(([pattern]) => matches(pattern, name)).map(([, rule]) => rule);
    if (Object.hasOwn(own, name)) rules.push(own[name]);
    if (rules.length === 0 && schema.additionalProperties === false) {
      run.problems.push({ at: place, text: "is not asked for" });
    } else if (rules.length === 0 && schema.additionalProperties !== undefined) {
      rules.push(schema.additionalProperties);
    }
    if (schema.propertyNames !== undefined) visit(run, schema.propertyNames, name, place, depth + 1);
    for (const rule of rules) visit(run, rule, value[name], place, depth + 1);
  }
}

function matches(pattern, name) {
  try {
    return new RegExp(pattern, "u").test(name);
  } catch {
    return false;
  }
}

function combined(run, schema, value, at, depth, say) {
  const count = (many) => many.filter((one) => fits(run, one, value, at, depth + 1)).length;
  for (const one of Array.isArray(schema.allOf) ? schema.allOf : []) {
    visit(run, one, value, at, depth + 1);
  }
  if (Array.isArray(schema.anyOf) && count(schema.anyOf) === 0) say("fits none of `anyOf`");
  if (Array.isArray(schema.oneOf)) {
    const fitting = count(schema.oneOf);
    if (fitting !== 1) say(`fits ${fitting || "none"} of \`oneOf\`, not exactly one`);
  }
  if (schema.not !== undefined && fits(run, schema.not, value, at, depth + 1)) say("fits `not`");
  if (schema.if !== undefined) {
    const branch = fits(run, schema.if, value, at, depth + 1) ? schema.then : schema.else;
    if (branch !== undefined) visit(run, branch, value, at, depth + 1);
  }
}

function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value !== null && typeof value === "object") {
    const inner = Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`);
    return `{${inner.join(",")}}`;
  }
  return JSON.stringify(value);
}

function same(one, other) {
  return canonical(one) === canonical(other);
}

function brief(value) {
  const whole = JSON.stringify(value);
  return whole.length > 80 ? `${whole.slice(0, 77)}...` : whole;
}
