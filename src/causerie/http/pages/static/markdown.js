// Markdown as models write it, shown without ever making markup of text: `parse` gives a tree,
// `Sheet` makes the nodes of it one by one. HTML in the text stays text, pictures become links,
// and only addresses of the web and of mail become links.

const FENCE = /^( {0,3})(`{3,}(?!`)|~{3,}(?!~))(?!.*`)\s*(\S*)/;
const HEADING = /^ {0,3}(#{1,6})\s/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,7})([-*+]|\d{1,9}[.)])( +|$)/;
const DIVIDER = /^\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?$/;
const TASK = /^\[([ xX])\]\s+/;
const NOTE = /^\[\^([\w-]{1,40})\]/;
const SAFE = /^(https?:\/\/|mailto:)[^\s]+$/i;
const DEEPEST = 8;
const MOST_LINES = 60; // of one formula

/** The blocks of a text, each with its source as `raw`. */
export function parse(text, depth = 0) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const [block, next] = blockAt(lines, at, depth);
    block.raw = lines.slice(at, next).join("\n");
    blocks.push(block);
    at = next;
  }
  return blocks;
}

function blockAt(lines, at, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return fenced(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) {
    const title = titleOf(line.slice(heading[0].length));
    return [{ type: "heading", level: heading[1].length, inline: inline(title) }, at + 1];
  }
  if (RULE.test(line)) return [{ type: "rule" }, at + 1];
  if (isFormula(line)) return formula(lines, at, depth);
  if (depth < DEEPEST && isNote(line)) return note(lines, at, depth);
  if (depth < DEEPEST && QUOTE.test(line)) return quoted(lines, at, depth);
  if (depth < DEEPEST && ITEM.test(line)) return listed(lines, at, depth);
  if (isTable(lines, at)) return table(lines, at);
  return paragraph(lines, at, depth);
}

/** A formula of lines of its own, none of them empty. While a text grows, one that is open may be closed yet. */
function formula(lines, at, depth) {
  const ends = lines[at].trim().startsWith("$$") ? "$$" : "\\]";
  const first = lines[at].trim().slice(2);
  let end = at + 1;
  if (!first.includes(ends)) {
    const last = Math.min(lines.length, at + MOST_LINES);
    while (end < last && lines[end].trim() && !lines[end].includes(ends)) end += 1;
    if (end === lines.length) return [{ type: "paragraph", inline: inline(lines.slice(at).join("\n").trim()) }, end];
    end += 1;
  }
  const source = lines.slice(at, end).join("\n").trim();
  if (source.indexOf(ends, 2) !== source.length - 2) return paragraph(lines, at, depth);
  return [{ type: "formula", text: source.slice(2, -2).trim(), source }, end];
}

function isFormula(line) {
  return /^ {0,3}(\$\$|\\\[)/.test(line);
}

/** The text of a footnote: what follows its mark, with lines that are indented. */
function note(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !startsBlock(lines[end])) end += 1;
  const [mark, id] = NOTE.exec(lines[at].trimStart());
  const text = lines.slice(at, end).join("\n").trim().slice(mark.length + 1);
  return [{ type: "note", id, blocks: parse(text.trim(), depth + 1) }, end];
}

function isNote(line) {
  return /^ {0,3}\[\^[\w-]{1,40}\]:/.test(line);
}

/** The words of a heading: hash marks end it only behind a space, so that "C#" is a word. */
function titleOf(rest) {
  const text = rest.trim();
  let end = text.length;
  while (text[end - 1] === "#") end -= 1;
  return end === 0 || /\s/.test(text[end - 1]) ? text.slice(0, end).trimEnd() : text;
}

function fenced(lines, at, [, indent, marks, language]) {
  const closing = new RegExp(`^ {0,3}${marks[0] === "~" ? "~" : "`"}{${marks.length},}\\s*$`);
  let end = at + 1;
  while (end < lines.length && !closing.test(lines[end])) end += 1;
  const cut = new RegExp(`^ {0,${indent.length}}`);
  const code = lines.slice(at + 1, end).map((line) => line.replace(cut, ""));
  return [{ type: "code", language, text: code.join("\n") }, Math.min(end + 1, lines.length)];
}

function quoted(lines, at, depth) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  const inner = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
  return [{ type: "quote", blocks: parse(inner.join("\n"), depth + 1) }, end];
}

function listed(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  const ordered = /\d/.test(first[2]);
  const list = { type: "list", ordered, start: ordered ? parseInt(first[2], 10) : 1, items: [] };
  let end = at;
  while (end < lines.length) {
    const mark = ITEM.exec(lines[end]);
    if (!mark || /\d/.test(mark[2]) !== ordered || mark[1].length > first[1].length + 1) break;
    if (RULE.test(lines[end])) break;
    const next = itemEnd(lines, end, mark);
    const text = dedented(lines, end, next, mark[0].length);
    const task = TASK.exec(text);
    const item = parse(task ? text.slice(task[0].length) : text, depth + 1);
    if (task) item.done = task[1] !== " ";
    list.items.push(item);
    end = next;
  }
  return [list, end];
}

function itemEnd(lines, at, mark) {
  const indent = mark[1].length + 1;
  let end = at + 1;
  while (end < lines.length) {
    const line = lines[end];
    if (!line.trim()) {
      let after = end;
      while (after < lines.length && !lines[after].trim()) after += 1;
      if (after === lines.length) return after;
      const inside = lines[after].search(/\S/) > indent - 1;
      const sibling = ITEM.test(lines[after]) && !inside;
      if (!inside) return sibling ? after : end;
      end = after;
    } else if (line.search(/\S/) < indent && (ITEM.test(line) || startsBlock(line))) {
      return end;
    } else {
      end += 1;
    }
  }
  return end;
}

function dedented(lines, at, end, width) {
  const cut = new RegExp(`^ {0,${width}}`);
  return [lines[at].slice(width), ...lines.slice(at + 1, end).map((line) => line.replace(cut, ""))]
    .join("\n");
}

function startsBlock(line) {
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || isFormula(line) || isNote(line);
}

function isTable(lines, at) {
  return (
    lines[at].includes("|") && at + 1 < lines.length && lines[at + 1].includes("-") &&
    DIVIDER.test(lines[at + 1].trim()) && cells(lines[at]).length === cells(lines[at + 1]).length
  );
}

function table(lines, at) {
  const head = cells(lines[at]).map(inline);
  const align = cells(lines[at + 1]).map((cell) => {
    if (/^:.*:$/.test(cell)) return "center";
    return cell.endsWith(":") ? "end" : "start";
  });
  let end = at + 2;
  const rows = [];
  while (end < lines.length && lines[end].includes("|") && lines[end].trim()) {
    const row = cells(lines[end]).map(inline);
    rows.push(head.map((_, index) => row[index] || []));
    end += 1;
  }
  return [{ type: "table", head, align, rows }, end];
}

function cells(line) {
  const found = [""];
  const text = line.trim().replace(/^\|/, "").replace(/([^\\]|^)\|$/, "$1");
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "\\" && text[at + 1] === "|") {
      found[found.length - 1] += "|";
      at += 1;
    } else if (text[at] === "|") {
      found.push("");
    } else {
      found[found.length - 1] += text[at];
    }
  }
  return found.map((cell) => cell.trim());
}

function paragraph(lines, at, depth) {
  let end = at + 1;
  while (
    end < lines.length && lines[end].trim() && !startsBlock(lines[end]) &&
    !(depth < DEEPEST && ITEM.test(lines[end])) && !isTable(lines, end)
  ) {
    end += 1;
  }
  return [{ type: "paragraph", inline: inline(lines.slice(at, end).join("\n").trim()) }, end];
}

const MARKS = [
  ["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"],
];

/** The pieces of a line of text: strings, and objects with a `type`. */
export function inline(text, depth = 0) {
  const pieces = [];
  const missing = new Set(); // what was looked for to the end and is not there
  let plain = "";
  let at = 0;
  const put = (piece, next) => {
    if (plain) pieces.push(plain);
    plain = "";
    if (piece) pieces.push(piece);
    at = next;
  };
  while (at < text.length) {
    const found = special(text, at, depth, missing);
    if (found) {
      put(...found);
    } else {
      plain += text[at];
      at += 1;
    }
  }
  put(null, at);
  return pieces;
}

function special(text, at, depth, missing) {
  const here = text[at];
  const math = here === "$" || here === "\\" ? formulaIn(text, at, missing) : null;
  if (math) return math;
  if (here === "\\" && /[\\`*_{}[\]()#+\-.!|~<>$]/.test(text[at + 1] || "")) {
    return [text[at + 1], at + 2];
  }
  if (here === "`") return codeSpan(text, at, missing);
  if (here === "\n") return [{ type: "break" }, at + 1];
  if (here === "h" || here === "<") return bareLink(text, at);
  const noted = here === "[" && NOTE.exec(text.slice(at, at + 50));
  if (noted) return [{ type: "note", id: noted[1] }, at + noted[0].length];
  if (depth >= DEEPEST) return null;
  if (here === "[" || (here === "!" && text[at + 1] === "[")) return link(text, at, depth);
  return "*_~".includes(here) ? emphasis(text, at, depth, missing) : null;
}

const FORMULAS = [["$$", "$$", true], ["\\[", "\\]", true], ["\\(", "\\)", false], ["$", "$", false]];

/** A formula between words. One dollar begins one only where it cannot be an amount of money. */
function formulaIn(text, at, missing) {
  const found = FORMULAS.find(([begin]) => text.startsWith(begin, at));
  if (!found || missing.has(`math ${found[0]}`)) return null;
  const [begin, ends, display] = found;
  const from = at + begin.length;
  const to = text.indexOf(ends, from + 1);
  if (to === -1) {
    missing.add(`math ${begin}`);
    return null;
  }
  const inside = text.slice(from, to);
  const money = /^\s|\s$|\n|^\d[^\\^_=+{]*$/.test(inside) || /\d/.test(text[to + 1] || "") || /\w/.test(text[at - 1] || "");
  if (begin === "$" && money) return null;
  return [{ type: "formula", text: inside.trim(), display, source: text.slice(at, to + ends.length) }, to + ends.length];
}

function codeSpan(text, at, missing) {
  const marks = /^`+/.exec(text.slice(at, at + 64))[0];
  if (missing.has(marks)) return [marks, at + marks.length];
  let end = text.indexOf(marks, at + marks.length);
  while (end !== -1 && text[end + marks.length] === "`") {
    end += /^`+/.exec(text.slice(end))[0].length;
    end = text.indexOf(marks, end);
  }
  if (end === -1) {
    missing.add(marks);
    return [marks, at + marks.length];
  }
  const code = text.slice(at + marks.length, end).replace(/\n/g, " ");
  const trimmed = /^ .*[^ ].* $/.test(code) ? code.slice(1, -1) : code;
  return [{ type: "code", text: trimmed }, end + marks.length];
}

function bareLink(text, at) {
  const angled = text[at] === "<";
  if (!angled && at > 0 && /\w/.test(text[at - 1])) return null;
  const shape = angled ? /^<((?:https?:\/\/|mailto:)[^\s<>]+)>/i : /^(https?:\/\/[^\s<>"'`]+)/i;
  const found = shape.exec(text.slice(at, at + 2048));
  if (!found) return null;
  let to = found[1];
  if (!angled) {
    to = to.replace(/[.,;:!?*_~]+$/, "");
    while (to.endsWith(")") && !to.includes("(")) to = to.slice(0, -1);
  }
  return [{ type: "link", to, inline: [to] }, at + (angled ? found[0].length : to.length)];
}

function link(text, at, depth) {
  const open = text[at] === "!" ? at + 1 : at;
  const found = /^\[((?:[^[\]\\]|\\.){0,1000})\]\(\s*<?([^\s<>()]*(?:\([^\s()]*\)[^\s<>()]*)*)>?(?:\s+["'][^"']{0,300}["'])?\s*\)/
    .exec(text.slice(open, open + 4096));
  if (!found) return null;
  const words = inline(found[1] || found[2], depth + 1);
  const end = open + found[0].length;
  if (!SAFE.test(found[2])) return [{ type: "span", inline: words }, end];
  return [{ type: "link", to: found[2], inline: words }, end];
}

function emphasis(text, at, depth, missing) {
  for (const [mark, type] of MARKS) {
    if (!text.startsWith(mark, at) || missing.has(mark)) continue;
    const start = at + mark.length;
    if (!text[start] || /\s/.test(text[start])) continue;
    if (mark[0] === "_" && at > 0 && /\w/.test(text[at - 1])) continue;
    const end = closing(text, start, mark);
    if (end === -1) {
      missing.add(mark);
      continue;
    }
    return [{ type, inline: inline(text.slice(start, end), depth + 1) }, end + mark.length];
  }
  return null;
}

function closing(text, from, mark) {
  let end = text.indexOf(mark, from + 1);
  while (end !== -1) {
    const after = text[end + mark.length] || "";
    const alone = mark.length === 2 || (after !== mark[0] && text[end - 1] !== mark[0]);
    const word = mark[0] === "_" && /\w/.test(after);
    if (alone && !word && !/\s/.test(text[end - 1])) {
      return mark.length === 2 && after === mark[0] ? end + 1 : end; // `***`: the inner one ends first
    }
    end = text.indexOf(mark, end + (alone ? 1 : 2));
  }
  return -1;
}

const SHORT = 2048; // characters that may be parsed for each piece
const GROWTH = 8; // a longer end is parsed again once it has grown by one in so many

/** The blocks of a text that grows. Only the last two can change by what is appended: a line that
 *  has just begun may turn out to belong to the block before it. The others are parsed once, and
 *  long ones of those two seldom, so all work is proportional to the text. What waits to be parsed
 *  is `rest`. */
export class GrowingText {
  constructor() {
    this.source = "";
    this.blocks = [];
    this.starts = []; // of each block, in characters
    this.rest = "";
    this.parsed = 0; // characters, however often
  }

  /** Read the text, of which the beginning was read before; gives the blocks without `rest`,
   *  which is empty where the text is `whole`. */
  read(text, whole = true) {
    const now = text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text;
    const grown = now.startsWith(this.source);
    const keep = grown ? Math.max(this.blocks.length - 2, 0) : 0;
    const from = keep ? this.starts[keep] : 0;
    const open = now.length - from;
    const added = now.length - this.source.length;
    if (grown && added === 0) {
      this.rest = "";
      return this.blocks;
    }
    if (grown && !whole && open > SHORT && added * GROWTH < open) {
      this.rest = now.slice(this.source.length);
      return this.blocks;
    }
    this.rest = "";
    this.parsed += open;
    this.source = now;
    this.blocks.length = this.starts.length = keep;
    let at = from;
    for (const block of parse(now.slice(from))) {
      at = now.indexOf(block.raw, at);
      this.blocks.push(block);
      this.starts.push(at);
      at += block.raw.length;
    }
    return this.blocks;
  }
}

/** Shows a text in an element; what has not changed since is left as it is. */
export class Sheet {
  constructor(element) {
    this.element = element;
    this.text = new GrowingText();
    this.shown = []; // the block of each child
  }

  /** Show the text; what is parsed later stands at its end as it is, until the text is `whole`. */
  show(text, whole = true) {
    this.rest?.remove();
    this.rest = null;
    const blocks = nested(this.text.read(text, whole));
    blocks.forEach((block, index) => {
      const before = this.shown[index];
      const ended = whole || index < blocks.length - 1;
      this.shown[index] = block;
      const old = this.element.children[index];
      if (before?.raw !== block.raw || before.rank !== block.rank) {
        if (old && grows(before, block) && old.dataset.coloured === undefined) {
          old.querySelector("code").firstChild.appendData(block.text.slice(before.text.length));
        } else if (old) old.replaceWith(blockNode(block));
        else this.element.append(blockNode(block));
      }
      if (ended && block.type === "code") colour(this.element.children[index], block);
    });
    while (this.element.children.length > blocks.length) this.element.lastElementChild.remove();
    this.shown.length = blocks.length;
    if (this.text.rest) {
      this.rest = document.createTextNode(this.text.rest);
      endOf(this.element).append(this.rest);
    }
  }
}

/** The blocks, of which headings have a `rank` below the page's own, without a gap: h2, then h3. */
function nested(blocks) {
  const above = [];
  for (const block of blocks.filter(({ type }) => type === "heading")) {
    while (above.at(-1) >= block.level) above.pop();
    above.push(block.level);
    block.rank = above.length + 1;
  }
  return blocks;
}

/** The element that the next words belong to, as far as one can know. */
function endOf(element) {
  const code = element.lastElementChild?.querySelector(":scope > pre > code");
  if (code) return code;
  const last = element.lastElementChild;
  return last?.matches("p, ul, ol, li, blockquote") ? endOf(last) : element;
}

/** Whether it is a listing of which the end was written since. */
function grows(before, block) {
  return (
    block.type === "code" && before?.type === "code" && before.text !== "" &&
    before.language === block.language && block.text.startsWith(before.text)
  );
}

function make(name, ...children) {
  const node = document.createElement(name);
  node.append(...children);
  return node;
}

function blockNode(block) {
  switch (block.type) {
    case "heading":
      return headingNode(block);
    case "formula":
      return make("p", formulaNode({ ...block, display: true }));
    case "note":
      return noteNode(block);
    case "rule":
      return make("hr");
    case "quote":
      return make("blockquote", ...block.blocks.map(blockNode));
    case "code":
      return codeNode(block);
    case "list":
      return listNode(block);
    case "table":
      return tableNode(block);
    default:
      return make("p", ...pieceNodes(block.inline));
  }
}

/** A heading; in a list or a quotation it is none of the page's. */
function headingNode({ rank, level, inline: pieces }) {
  const node = make(rank ? `h${Math.min(rank, 6)}` : "p", ...pieceNodes(pieces));
  node.className = `heading heading-${Math.min(level, 4)}`;
  return node;
}

function noteNode({ id, blocks }) {
  const node = make("div", make("sup", id), ...blocks.map(blockNode));
  node.className = "footnote";
  node.dataset.note = id;
  return node;
}

let typeset = null; // draws formulas, once a text has had one

/** A formula, as its source until what draws it has come. */
function formulaNode({ text, display, source }) {
  const node = make("span", source);
  node.className = display ? "formula formula-display" : "formula";
  if (display) node.tabIndex = 0; // it may have to be scrolled
  if (typeset) typeset(node, text, display);
  else {
    import("./formulas.js").then((found) => {
      typeset = found.typeset;
      typeset(node, text, display);
    }, () => {}); // no network: the source stays
  }
  return node;
}

/** Give a listing the colours of its language, once it has ended. */
function colour(figure, { language, text }) {
  if (!language || figure.dataset.coloured !== undefined) return;
  figure.dataset.coloured = "";
  import("./highlight.js").then(({ highlight }) => highlight(figure.querySelector("code"), language, text), () => {});
}

function codeNode(block) {
  const figure = make("figure");
  figure.className = "listing";
  const bar = make("figcaption", make("span", block.language || "text"));
  const copy = make("button", "Copy");
  copy.type = "button";
  copy.className = "code-copy";
  bar.append(copy);
  const pre = make("pre", make("code", block.text));
  pre.tabIndex = 0;
  figure.append(bar, pre);
  return figure;
}

function listNode(block) {
  const list = make(block.ordered ? "ol" : "ul");
  if (block.ordered && block.start !== 1) list.start = block.start;
  for (const item of block.items) {
    const tight = item.length && item[0].type === "paragraph";
    const first = tight ? pieceNodes(item[0].inline) : [];
    const node = make("li", ...first, ...item.slice(tight ? 1 : 0).map(blockNode));
    if (item.done !== undefined) node.prepend(taskNode(item.done));
    list.append(node);
  }
  return list;
}

function taskNode(done) {
  const node = make("span");
  node.className = "task";
  node.setAttribute("role", "img");
  node.setAttribute("aria-label", done ? "Done:" : "To do:");
  node.toggleAttribute("data-done", done);
  return node;
}

function tableNode(block) {
  const row = (pieces, name) =>
    make("tr", ...pieces.map((cell, index) => {
      const node = make(name, ...pieceNodes(cell));
      node.className = `align-${block.align[index] || "start"}`;
      return node;
    }));
  const table = make(
    "table",
    make("thead", row(block.head, "th")),
    make("tbody", ...block.rows.map((cells) => row(cells, "td"))),
  );
  const frame = make("div", table);
  frame.className = "table-scroll";
  frame.tabIndex = 0; // it may have to be scrolled
  return frame;
}

/** The mark of a footnote leads to its text. */
function noteMark(id) {
  const button = make("button", id);
  button.type = "button";
  button.className = "note-mark";
  button.setAttribute("aria-label", `Footnote ${id}`);
  button.addEventListener("click", () => {
    button.closest(".prose").querySelector(`[data-note="${CSS.escape(id)}"]`)?.scrollIntoView({ block: "center" });
  });
  return make("sup", button);
}

function pieceNodes(pieces) {
  return pieces.map((piece) => {
    if (typeof piece === "string") return document.createTextNode(piece);
    if (piece.type === "break") return make("br");
    if (piece.type === "code") return make("code", piece.text);
    if (piece.type === "formula") return formulaNode(piece);
    if (piece.type === "note") return noteMark(piece.id);
    if (piece.type === "link" && SAFE.test(piece.to)) {
      const anchor = make("a", ...pieceNodes(piece.inline));
      anchor.href = piece.to;
      anchor.rel = "noopener noreferrer nofollow";
      anchor.target = "_blank";
      return anchor;
    }
    return make(piece.type === "link" ? "span" : piece.type, ...pieceNodes(piece.inline));
  });
}
