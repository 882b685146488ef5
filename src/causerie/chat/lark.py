"""A client's grammar made into part of a larger one, and errors of the compiler in its terms."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from llguidance.gbnf_to_lark import gbnf_to_lark

from causerie.chat.schema import prepare
from causerie.chat.schema.keywords import Schema, SchemaRefused, step

# Rules and terminals of the client's grammar get a prefix, so that they meet no others. What would
# reach beyond it (directives, ignored white space, control tokens) is refused.

MAX_CHARACTERS = 100_000
_PARAM = "structured_outputs.grammar"

_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\r]+|\#[^\n]*|//[^\n]*)
    | (?P<newline>\n)
    | (?P<string>"(?:\\(?:["\\/bfnrt]|u[a-fA-F0-9]{4}|x[a-fA-F0-9]{2})|[^"\\\x00-\x1f\x7f])*"i?)
    | (?P<regex>/(?:\\.|[^/\\\n])+/[imslux]*)
    | (?P<directive>%[a-z]+)
    | (?P<special><[^<>\s]+>)
    | (?P<reference>@[a-zA-Z0-9_\-]+)
    | (?P<mark>[!?]?_?[a-z][_a-z0-9\-]*|_?[A-Z][_A-Z0-9\-]*)
    | (?P<number>[+-]?[0-9]+)
    | (?P<symbol>->|::|\.\.|[:,.(){}\[\]~|&=_+*?])
    """,
    re.VERBOSE,
)
_OPTIONS = frozenset({"lazy", "suffix", "capture"})
_COMMON = frozenset({
    "DIGIT", "HEXDIGIT", "INT", "SIGNED_INT", "DECIMAL", "_EXP", "FLOAT", "SIGNED_FLOAT",
    "NUMBER", "SIGNED_NUMBER", "ESCAPED_STRING", "LCASE_LETTER", "UCASE_LETTER", "LETTER",
    "WORD", "CNAME", "WS_INLINE", "WS", "CR", "LF", "NEWLINE", "SH_COMMENT", "CPP_COMMENT",
    "C_COMMENT", "SQL_COMMENT",
})  # fmt: skip
_DIRECTIVES = {
    "%ignore": "`%ignore` would reach beyond the answer; write the white space into the rules.",
    "%lark": "Nested grammars are not supported.",
    "%if": "Conditions are not supported.",
    "%declare": "`%declare` is not supported.",
    "%override": "`%override` is not supported.",
    "%extend": "`%extend` is not supported.",
}


EMBEDDED = "g_start"
"""Name of the rule to refer to."""


def embed(text: str, prefix: str = "g", *, param: str = _PARAM) -> str:
    """Return the grammar as lines of Lark, with a prefix before its names.

    Raises ``SchemaRefused``, which names the line.
    """
    if len(text) > MAX_CHARACTERS:
        raise SchemaRefused(param, f"The grammar is longer than {MAX_CHARACTERS} characters.")
    if re.search(r"^\s*[a-zA-Z][a-zA-Z0-9_-]*\s*::=", text, re.MULTILINE):
        if not re.search(r"^\s*root\s*::=", text, re.MULTILINE):
            raise SchemaRefused(param, "The GBNF grammar has no rule `root`.")
        try:
            text = gbnf_to_lark(text)
        except Exception as error:  # noqa: BLE001 - the converter raises bare exceptions
            told = str(error).partition("\n")[0][:160]
            raise SchemaRefused(param, f"The GBNF grammar cannot be read: {told}") from None
    return _Embedder(text, prefix, param).run()


class _Embedder:
    def __init__(self, text: str, prefix: str, param: str) -> None:
        self._grammar = text.replace("\r\n", "\n")
        self._prefix = prefix
        self._param = param
        self._offset = 0
        self._output: list[str] = []
        self._defined: set[str] = set()
        self._used_rules: dict[str, int] = {}  # with the place of the first use

    def run(self) -> str:
        while (token := self._next_token()) is not None:
            if token.lastgroup in ("newline", "space"):
                self._output.append("\n" if token.lastgroup == "newline" else " ")
            elif token.lastgroup == "mark" and self._at_line_start():
                self._read_definition(token)
            else:
                self._read_body_token(token)
        if "start" not in self._defined:
            raise SchemaRefused(self._param, "The grammar has no rule `start`.")
        for name, place in self._used_rules.items():
            if name not in self._defined:
                raise self._refusal(f"`{name}` is not defined.", place)
        lines = (line.strip() for line in "".join(self._output).split("\n"))
        return "\n".join(line for line in lines if line) + "\n"

    def _refusal(self, reason: str, at: int | None = None) -> SchemaRefused:
        line = 1 + self._grammar.count("\n", 0, self._offset if at is None else at)
        return SchemaRefused(self._param, f"Line {line} of the grammar: {reason}")

    def _next_token(self) -> re.Match[str] | None:
        if self._offset >= len(self._grammar):
            return None
        found = _TOKEN.match(self._grammar, self._offset)
        if found is None:
            raise self._refusal(
                f"{self._grammar[self._offset : self._offset + 20]!r} is not understood."
            )
        self._offset = found.end()
        return found

    def _at_line_start(self) -> bool:
        return next((each.endswith("\n") for each in reversed(self._output) if each != " "), True)

    def _read_definition(self, token: re.Match[str]) -> None:
        name = token.group().lstrip("!?")
        kinds = (text for kind, text, _ in tokens(self._grammar, self._offset) if kind != "space")
        follows = next(kinds, "")
        if follows not in (":", "[", "."):
            raise self._refusal(f"`{name}` begins the line, but no `:` follows.")
        if follows == ".":
            raise self._refusal("Priorities are not supported.")
        if name in self._defined:
            raise self._refusal(f"`{name}` is defined twice.")
        self._defined.add(name)
        self._output.append(self._prefixed(name))
        if follows == "[":
            self._copy_rule_options()

    def _copy_rule_options(self) -> None:
        while (token := self._next_token()) is not None:
            kind, text = token.lastgroup, token.group()
            if kind == "mark" and text.islower():
                if text not in _OPTIONS:
                    raise self._refusal(
                        f"The option `{text}` is not supported; "
                        f"these are: {', '.join(sorted(_OPTIONS))}."
                    )
                self._output.append(text)
            elif text == "]":
                self._output.append("]")
                return
            elif kind in ("special", "reference", "directive"):
                self._read_body_token(token)
            else:
                self._output.append(self._used_name(token) if kind == "mark" else text)
        raise self._refusal("`[` is never closed.")

    def _read_body_token(self, token: re.Match[str]) -> None:
        kind, text = token.lastgroup, token.group()
        if kind == "special":
            raise self._refusal("Control tokens (`<…>`) are not allowed.", token.start())
        if kind == "reference":
            raise self._refusal("References to other grammars (`@…`) are not supported.")
        if text == "::":
            raise self._refusal("Rules with parameters (`::`) are not supported.")
        if kind == "directive":
            self._read_directive(text)
        elif kind == "mark":
            self._output.append(self._used_name(token))
        elif text == "->":
            self._skip_alias()
        else:
            self._output.append(text)

    def _skip_alias(self) -> None:
        # The name of an alternative in a parse tree, which nobody sees here.
        while (token := self._next_token()) is not None and token.lastgroup == "space":
            pass
        if token is None or token.lastgroup != "mark":
            raise self._refusal("`->` is followed by no name.")

    def _used_name(self, token: re.Match[str]) -> str:
        name = token.group().lstrip("!?")
        self._used_rules.setdefault(name, token.start())
        return token.group().removesuffix(name) + self._prefixed(name)

    def _prefixed(self, name: str) -> str:
        prefix = self._prefix.upper() if name.lstrip("_")[0].isupper() else self._prefix
        return f"{prefix}_{name}"

    def _read_directive(self, directive: str) -> None:
        if directive == "%json":
            schema = self._json_behind(directive)
            if not isinstance(schema, dict | bool):
                raise self._refusal("`%json` takes a schema, an object.")
            prepared = prepare(schema, param=self._param)
            for pointer, keyword in prepared.left:
                reason = f"`{keyword}` cannot be enforced inside a grammar."
                raise SchemaRefused(self._param, reason, pointer)
            self._output.append("%json " + prepared.text)
        elif directive == "%regex":
            self._output.append("%regex " + json.dumps(self._json_behind("%regex")))
        elif directive == "%llguidance":
            if self._json_behind("%llguidance") != {}:
                raise self._refusal("`%llguidance` may only say `{}`; options are not supported.")
        elif directive == "%import":
            self._read_import()
        else:
            raise self._refusal(_DIRECTIVES.get(directive, f"`{directive}` is not known."))

    def _json_behind(self, directive: str) -> object:
        try:
            value, end = _json_at(self._grammar, self._offset)
        except (ValueError, RecursionError):
            raise self._refusal(f"`{directive}` is followed by no valid JSON value.") from None
        self._offset = end
        return value

    def _read_import(self) -> None:
        line, start = "", self._offset
        while (token := self._next_token()) is not None and token.lastgroup != "newline":
            line += token.group() if token.lastgroup != "space" else " "
        one = re.fullmatch(r"\s*common\s*\.\s*(\w+)\s*(?:->\s*(\w+))?\s*", line)
        several = re.fullmatch(r"\s*common\s*\(([\w\s,]+)\)\s*", line)
        if one is not None:
            pairs = [(one.group(1), one.group(2) or one.group(1))]
        elif several is not None:
            names = [name.strip() for name in several.group(1).split(",") if name.strip()]
            pairs = [(name, name) for name in names]
        else:
            raise self._refusal("Only `%import common.NAME` is supported.", start)
        for name, alias in pairs:
            if name not in _COMMON or not re.fullmatch(r"_?[A-Z][_A-Z0-9]*", alias):
                raise self._refusal(f"`common` has no terminal {name!r}.", start)
            self._defined.add(alias)
            self._output.append(f"\n%import common.{name} -> {self._prefixed(alias)}\n")


def tokens(text: str, at: int = 0) -> Iterator[tuple[str, str, int]]:
    """Yield kind, text and start of each token of a Lark text, as far as it can be read.

    JSON behind a directive is skipped.
    """
    while (found := _TOKEN.match(text, at)) is not None:
        yield found.lastgroup or "", found.group(), found.start()
        at = found.end()
        if found.group() in ("%json", "%regex", "%llguidance"):
            try:
                _, at = _json_at(text, at)
            except (ValueError, RecursionError):
                return


def _json_at(text: str, at: int) -> tuple[Any, int]:
    space = re.compile(r"\s*").match(text, at)
    return json.JSONDecoder().raw_decode(text, space.end() if space else at)


# The compiler names rules and lines of the composed grammar, which the client never saw. So the
# schema inside is found, and its subschemas are tried one by one.

Fault = Callable[[str], str | None]

_SEARCH_SECONDS = 0.3
_PREFIX = "#/$defs/"
_MEANINGS = (
    ("unsatisfiable schema: required > maxproperties",
     "more properties are required than are allowed."),
    ("unsatisfiable schema: regex is empty", "no string satisfies pattern, format and length."),
    ("unsatisfiable", "no document can satisfy it."),
    ("no text can follow", "nothing can satisfy it."),
    ("circular references with sibling",
     "keywords alongside a `$ref` that refers back to itself are not supported."),
    ("min/maxproperties only supported", "minProperties and maxProperties are only enforced where "
     "all named properties are required."),
    ("disjoint", "patterns of patternProperties that may match the same name are not supported."),
    ("regex parse error", "a pattern is not understood."),
    ("lookaround", "anchors inside a pattern and look-arounds are not supported."),
    ("failed to generate regex for", "the range of numbers cannot be expressed."),
    ("expected f64", "a number is out of range."),
)  # fmt: skip
_TOO_LARGE = ("fuel", "too large", "too many", "limit", "stack level", "too complex", "exceeded",
              "max is", "unable to determine", "memory")  # fmt: skip
TOO_COMPLEX = "it is too complex to be enforced; make patterns, bounds or alternatives simpler."


def reason(error: str) -> str:
    """Return one sentence for the client; nothing of the grammar or the compiler shows."""
    lowered = error.lower()
    for words, meaning in _MEANINGS:
        if words in lowered:
            return meaning
    if any(word in lowered for word in _TOO_LARGE):
        return TOO_COMPLEX
    found = re.match(r"(?:at )?\d+\(\d+\): ([^\n]{1,160})", error)
    if found is not None and "JSON schema" not in found.group(1):
        return f"it is not understood: {found.group(1).strip()}"
    return "it cannot be compiled."


def schema_fault(grammar: str, fault: Fault) -> dict[str, object] | None:
    """Return pointer and reason of the deepest subschema of a ``%json`` that fails on its own.

    Also the ``function`` whose parameters it is of, where its comment names one.
    """
    until = time.process_time() + _SEARCH_SECONDS
    for kind, text, at in tokens(grammar):
        if kind != "directive" or text != "%json":
            continue
        schema, _ = _json_at(grammar, at + len("%json "))
        error = fault(_subschema_grammar(schema, schema))
        if error is not None and isinstance(schema, Mapping):
            pointer, error = _deepest_fault(schema, error, fault, until)
            found = {"pointer": pointer, "reason": reason(error)}
            return found | {"function": schema.get("$comment")}
    return None


def _subschema_grammar(schema: object, top: Schema) -> str:
    if isinstance(schema, Mapping):
        kept = {key: top[key] for key in ("x-guidance", "$defs") if key in top}
        schema = {**schema, **kept}
    return "%llguidance {}\nstart: %json " + json.dumps(schema, ensure_ascii=False) + "\n"


def _deepest_fault(top: Schema, error: str, fault: Fault, until: float) -> tuple[str, str]:
    here: object = top
    pointer = "#"
    seen: set[str] = set()
    while True:
        for place, part in _subschemas(here, pointer, top, seen):
            if time.process_time() > until:
                return pointer, error
            found = fault(_subschema_grammar(part, top)) if isinstance(part, Mapping) else None
            if found is not None:
                here, pointer, error = part, place, found
                break
        else:
            return pointer, error


def _subschemas(
    schema: object, pointer: str, top: Schema, seen: set[str]
) -> Iterator[tuple[str, object]]:
    if not isinstance(schema, Mapping):
        return
    definitions = top.get("$defs")
    for key, value in schema.items():
        if key == "$ref" and isinstance(definitions, Mapping):
            name = str(value).removeprefix(_PREFIX)
            target = definitions.get(name)
            if name not in seen and isinstance(target, Mapping):
                seen.add(name)
                yield str(target.get("$comment", pointer)), target
        elif key in ("properties", "patternProperties") and isinstance(value, Mapping):
            for name, part in value.items():
                yield step(pointer, key, name), part
        elif key in ("items", "additionalProperties"):
            yield step(pointer, key), value
        elif key in ("allOf", "anyOf", "prefixItems") and isinstance(value, list):
            for index, part in enumerate(value):
                yield step(pointer, key, index), part
