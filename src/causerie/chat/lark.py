"""A client's grammar made into part of a larger one, as it is or for texts within JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any

from llguidance.gbnf_to_lark import gbnf_to_lark

from causerie.chat.grammar_text import quoted
from causerie.chat.schema import prepare
from causerie.chat.schema.keywords import SchemaRefused
from causerie.chat.schema.pattern import DOT, Piece, Refused, between_slashes, pieces, split_at_bars

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
_WITHOUT_ESCAPES = frozenset({
    "DIGIT", "HEXDIGIT", "INT", "SIGNED_INT", "DECIMAL", "_EXP", "FLOAT", "SIGNED_FLOAT",
    "NUMBER", "SIGNED_NUMBER", "LCASE_LETTER", "UCASE_LETTER", "LETTER", "WORD", "CNAME",
})  # fmt: skip
"""Terminals of the library whose texts are the same within JSON."""
_SPACES = {
    "LF": r"/\n/", "CR": r"/\r/", "NEWLINE": r"/(\r?\n)+/", "WS_INLINE": r"/[ \t]+/",
    "WS": r"/[ \t\f\r\n]+/",
}  # fmt: skip
_COMMON = _WITHOUT_ESCAPES | _SPACES.keys() | {
    "ESCAPED_STRING", "SH_COMMENT", "CPP_COMMENT", "C_COMMENT", "SQL_COMMENT",
}  # fmt: skip
_DIRECTIVES = {
    "%ignore": "`%ignore` would reach beyond the answer; write the white space into the rules.",
    "%lark": "Nested grammars are not supported.",
    "%if": "Conditions are not supported.",
    "%declare": "`%declare` is not supported.",
    "%override": "`%override` is not supported.",
    "%extend": "`%extend` is not supported.",
}


EMBEDDED = "g_start"  # name of the rule to refer to


def embed(text: str, prefix: str = "g", *, param: str = _PARAM) -> str:
    """Return a client's Lark or GBNF grammar as lines of Lark, with a prefix before its names.

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
        self._request_field = param
        self._offset = 0
        self._output: list[str] = []
        self._defined_names: set[str] = set()
        self._first_use_offset_by_name: dict[str, int] = {}  # with the place of the first use

    def run(self) -> str:
        while (token := self._read_next_token()) is not None:
            if token.lastgroup in ("newline", "space"):
                self._output.append("\n" if token.lastgroup == "newline" else " ")
            elif token.lastgroup == "mark" and self._is_output_at_line_start():
                self._copy_defined_name(token)
            else:
                self._copy_body_token(token)
        if "start" not in self._defined_names:
            raise SchemaRefused(self._request_field, "The grammar has no rule `start`.")
        for name, place in self._first_use_offset_by_name.items():
            if name not in self._defined_names:
                raise self._refusal(f"`{name}` is not defined.", place)
        lines = (line.strip() for line in "".join(self._output).split("\n"))
        return "\n".join(line for line in lines if line) + "\n"

    def _refusal(self, reason: str, offset: int | None = None) -> SchemaRefused:
        line = 1 + self._grammar.count("\n", 0, self._offset if offset is None else offset)
        return SchemaRefused(self._request_field, f"Line {line} of the grammar: {reason}")

    def _read_next_token(self) -> re.Match[str] | None:
        if self._offset >= len(self._grammar):
            return None
        found = _TOKEN.match(self._grammar, self._offset)
        if found is None:
            raise self._refusal(
                f"{self._grammar[self._offset : self._offset + 20]!r} is not understood."
            )
        self._offset = found.end()
        return found

    def _is_output_at_line_start(self) -> bool:
        return next((each.endswith("\n") for each in reversed(self._output) if each != " "), True)

    def _copy_defined_name(self, name_token: re.Match[str]) -> None:
        name = name_token.group().lstrip("!?")
        kinds = (text for kind, text, _ in tokens(self._grammar, self._offset) if kind != "space")
        follows = next(kinds, "")
        if follows not in (":", "[", "."):
            raise self._refusal(f"`{name}` begins the line, but no `:` follows.")
        if follows == ".":
            raise self._refusal("Priorities are not supported.")
        if name in self._defined_names:
            raise self._refusal(f"`{name}` is defined twice.")
        self._defined_names.add(name)
        self._output.append(self._add_prefix(name))
        if follows == "[":
            self._copy_bracketed_rule_options()

    def _copy_bracketed_rule_options(self) -> None:
        while (token := self._read_next_token()) is not None:
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
                self._copy_body_token(token)
            else:
                self._output.append(self._prefix_and_note_use(token) if kind == "mark" else text)
        raise self._refusal("`[` is never closed.")

    def _copy_body_token(self, token: re.Match[str]) -> None:
        kind, text = token.lastgroup, token.group()
        if kind == "special":
            raise self._refusal("Control tokens (`<…>`) are not allowed.", token.start())
        if kind == "reference":
            raise self._refusal("References to other grammars (`@…`) are not supported.")
        if text == "::":
            raise self._refusal("Rules with parameters (`::`) are not supported.")
        if kind == "directive":
            self._copy_directive(text)
        elif kind == "mark":
            self._output.append(self._prefix_and_note_use(token))
        elif text == "->":
            self._skip_alias()
        else:
            self._output.append(text)

    def _skip_alias(self) -> None:
        # The name of an alternative in a parse tree, which nobody sees here.
        while (token := self._read_next_token()) is not None and token.lastgroup == "space":
            pass
        if token is None or token.lastgroup != "mark":
            raise self._refusal("`->` is followed by no name.")

    def _prefix_and_note_use(self, name_token: re.Match[str]) -> str:
        name = name_token.group().lstrip("!?")
        self._first_use_offset_by_name.setdefault(name, name_token.start())
        return name_token.group().removesuffix(name) + self._add_prefix(name)

    def _add_prefix(self, rule_name: str) -> str:
        prefix = self._prefix.upper() if rule_name.lstrip("_")[0].isupper() else self._prefix
        return f"{prefix}_{rule_name}"

    def _copy_directive(self, directive: str) -> None:
        if directive == "%json":
            schema = self._read_json_behind(directive)
            if not isinstance(schema, dict | bool):
                raise self._refusal("`%json` takes a schema, an object.")
            prepared = prepare(schema, param=self._request_field)
            for pointer, keyword in prepared.left:
                reason = f"`{keyword}` cannot be enforced inside a grammar."
                raise SchemaRefused(self._request_field, reason, pointer)
            self._output.append("%json " + prepared.text)
        elif directive == "%regex":
            self._output.append("%regex " + json.dumps(self._read_json_behind("%regex")))
        elif directive == "%llguidance":
            if self._read_json_behind("%llguidance") != {}:
                raise self._refusal("`%llguidance` may only say `{}`; options are not supported.")
        elif directive == "%import":
            self._copy_import()
        else:
            raise self._refusal(_DIRECTIVES.get(directive, f"`{directive}` is not known."))

    def _read_json_behind(self, directive: str) -> object:
        try:
            value, end = json_at(self._grammar, self._offset)
        except (ValueError, RecursionError):
            raise self._refusal(f"`{directive}` is followed by no valid JSON value.") from None
        self._offset = end
        return value

    def _copy_import(self) -> None:
        line, start = "", self._offset
        while (token := self._read_next_token()) is not None and token.lastgroup != "newline":
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
            self._defined_names.add(alias)
            self._output.append(f"\n%import common.{name} -> {self._add_prefix(alias)}\n")


def tokens(text: str, at: int = 0) -> Iterator[tuple[str, str, int]]:
    """Yield kind, text and start of each token of a Lark text, as far as it can be read.

    JSON behind a directive is skipped.
    """
    while (found := _TOKEN.match(text, at)) is not None:
        yield found.lastgroup or "", found.group(), found.start()
        at = found.end()
        if found.group() in ("%json", "%regex", "%llguidance"):
            try:
                _, at = json_at(text, at)
            except (ValueError, RecursionError):
                return


def json_at(text: str, at: int) -> tuple[Any, int]:
    space = re.compile(r"\s*").match(text, at)
    return json.JSONDecoder().raw_decode(text, space.end() if space else at)


# The same for texts within a string of JSON. Quotes, backslashes and line ends are written as their
# short escapes there, and all other characters as they are; control characters without a short
# escape are left out. An engine's lexer looks one byte ahead and never back, so that an escape is
# always a lexeme of its own: terminals become rules.

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f",
            "\b": "\\b"}  # fmt: skip
_BARE = r'[^"\\\x00-\x1f]'
_CONTROLS = [chr(code) for code in range(32) if chr(code) not in _ESCAPES]
_IMPORT = re.compile(r"^%import common\.(\w+) -> (\w+)$", re.MULTILINE)
_FLAGS = frozenset({"", "s"})
_DEEPEST = 16  # groups within each other; each is read once more for each that it is in


@dataclass(frozen=True, slots=True)
class Embedded:
    """A grammar to be embedded: its ``rules`` in Lark, and the name of the one to refer to."""

    start: str
    rules: str


def embed_in_json(text: str, prefix: str, *, param: str) -> Embedded:
    """Embed a grammar as :func:`embed` does, but for texts inside strings of JSON.

    Raises ``SchemaRefused`` for what cannot be said there.
    """
    rules = embed(text, prefix, param=param)
    try:
        return Embedded(f"{prefix}_start", "\n".join(_adapt_lines_to_json(rules)) + "\n")
    except (Refused, re.error) as refused:
        raise SchemaRefused(
            param, f"The grammar cannot be followed within JSON: {refused}"
        ) from None


def _adapt_lines_to_json(grammar: str) -> Iterator[str]:
    kept = {alias for name, alias in _IMPORT.findall(grammar) if name in _WITHOUT_ESCAPES}
    for line in grammar.splitlines():
        imported = _IMPORT.fullmatch(line)
        if imported is None:
            if re.match(r"\s*[\w?!-]+\[", line):
                raise Refused("Options of rules are not supported there.")
            out, read = [], 0
            for kind, token, start in tokens(line):
                out.append(line[read:start])
                out.append(_adapt_token_to_json(kind, token, kept))
                read = start + len(token)
            yield "".join([*out, line[read:]])
        elif imported[2] in kept:
            yield line
        elif imported[1] in _SPACES:
            yield f"{_build_rule_name(imported[2])}: {_adapt_regex_to_json(_SPACES[imported[1]])}"
        else:
            raise Refused(f"`common.{imported[1]}` is not known there.")


def _adapt_token_to_json(kind: str, token: str, kept_terminals: set[str]) -> str:
    if kind == "string":
        return _adapt_string_to_json(token)
    if kind == "regex":
        return _adapt_regex_to_json(token)
    if kind == "directive" or token in ("~", "..", "&"):
        raise Refused(f"`{token}` is not supported there.")
    if kind == "mark" and token not in kept_terminals and token.lstrip("_")[0].isupper():
        return _build_rule_name(token)
    return token


def _build_rule_name(terminal: str) -> str:
    return f"{terminal.lower()}_t"


def _adapt_string_to_json(string_token: str) -> str:
    text = string_token.removesuffix("i")
    value: str = json.loads(re.sub(r"\\x(..)", r"\\u00\1", text))
    runs = groupby(value, lambda character: character in _ESCAPES)
    parts = [
        part
        for escaped, run in runs
        for part in (map(_ESCAPES.__getitem__, run) if escaped else ("".join(run),))
    ]
    if any(control in value for control in _CONTROLS):
        raise Refused(f"{string_token[:40]} holds a control character.")
    flag = string_token[len(text) :]
    written = " ".join(quoted(part) + ("" if part.startswith("\\") else flag) for part in parts)
    return f"({written})" if len(parts) > 1 else written or '""'


def _adapt_regex_to_json(regex_token: str) -> str:
    body, _, flags = regex_token[1:].rpartition("/")
    if flags not in _FLAGS:
        raise Refused(f"The flags of {regex_token[:40]} are not supported there.")
    dot = "(?s:.)" if flags else r"[^\n]"
    found = [replace(one, text=dot) if one.text == DOT else one for one in pieces(body)]
    if any(piece.kind in ("start", "end") for piece in found):
        raise Refused("Anchors are not supported there.")
    if any(piece.depth > _DEEPEST for piece in found):
        raise Refused(f"{regex_token[:40]} nests more than {_DEEPEST} groups.")
    return f"({_build_json_expression_of_pieces(found)})"


def _build_json_expression_of_pieces(regex_pieces: Sequence[Piece]) -> str:
    if all(piece.kind != "atom" or not _find_escapes(piece.text) for piece in regex_pieces):
        text = "".join(piece.text for piece in regex_pieces)
        return between_slashes(text) if text else '""'
    depth = min(piece.depth for piece in regex_pieces)
    ways = [" ".join(_iter_json_branch_parts(way)) for way in split_at_bars(regex_pieces, depth)]
    return " | ".join(way or '""' for way in ways)


def _iter_json_branch_parts(branch: Sequence[Piece]) -> Iterator[str]:
    plain: list[Piece] = []  # neighbours that are one terminal
    for unit, quantifier in _split_into_units(branch):
        if all(piece.kind != "atom" or not _find_escapes(piece.text) for piece in unit):
            plain += [*unit, *quantifier]
            continue
        if plain:
            yield _build_json_expression_of_pieces(plain)
            plain = []
        often = quantifier[0].text if quantifier else ""
        if len(unit) == 1:
            inside = _adapt_atom_to_json(unit[0].text, several=often in ("*", "+"))
        else:
            inside = _build_json_expression_of_pieces(unit[1:-1])
        yield f"({inside}){often}"
    if plain:
        yield _build_json_expression_of_pieces(plain)


def _split_into_units(branch: Sequence[Piece]) -> Iterator[tuple[Sequence[Piece], Sequence[Piece]]]:
    at = 0
    while at < len(branch):
        end = at + 1
        if branch[at].kind == "open":
            while not (branch[end].kind == "close" and branch[end].depth == branch[at].depth):
                end += 1
            end += 1
        behind = end + (end < len(branch) and branch[end].kind == "quantifier")
        yield branch[at:end], branch[end:behind]
        at = behind


@lru_cache(maxsize=1024)
def _find_escapes(atom: str) -> list[str]:
    found = [short for plain, short in _ESCAPES.items() if re.fullmatch(atom, plain)]
    return found or ([""] if any(re.fullmatch(atom, each) for each in _CONTROLS) else [])


@lru_cache(maxsize=1024)
def _adapt_atom_to_json(atom: str, *, several: bool) -> str:
    ways = [quoted(short) for short in _find_escapes(atom) if short]
    if atom == "(?s:.)":
        ways.append(f"/{_BARE}{'+' * several}/")
    elif atom.startswith("[") and atom.endswith("]"):
        if any(re.fullmatch(atom, chr(one)) for one in range(32, 0x250) if chr(one) not in '"\\'):
            ways.append(between_slashes(f"[{atom}&&{_BARE}]{'+' * several}"))
    elif atom.startswith("("):
        raise Refused("A class like this is not supported there.")
    if not ways:
        raise Refused("A control character is not supported there.")
    return " | ".join(ways)
