// Formulas in TeX, drawn as MathML by Temml, which comes with the first one.

const LONGEST = 4000; // characters; a longer one stays as it was written

function loaded() {
  const script = document.createElement("script");
  script.src = new URL("./temml.js", import.meta.url);
  return new Promise((resolve, reject) => {
    script.onload = () => resolve(globalThis.temml);
    script.onerror = reject;
    document.head.append(script);
  });
}

const temml = await loaded();

/** Show a formula in an element, which holds its source; what is no TeX stays as it was written. */
export function typeset(element, text, display) {
  if (text.length > LONGEST) return;
  const drawn = document.createElement("span");
  try {
    temml.render(text, drawn, { displayMode: display, throwOnError: true, trust: false });
  } catch {
    return;
  }
  element.replaceChildren(...drawn.childNodes);
}
