"""A Lark grammar of texts, rewritten into one of the same texts within a string of JSON.

Quotes, backslashes and line ends are written as their short escapes there, and all other characters
as they are; control characters without a short escape are left out. An engine's lexer looks one
byte ahead and never back, so that an escape is always a lexeme of its own: terminals become rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

from causerie.chat.grammar_text import quoted
from causerie.chat.lark import embed, tokens
from causerie.chat.schema.keywords import SchemaRefused
from causerie.chat.schema.pattern import DOT, Piece, Refused, alternatives, between_slashes, pieces

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f",
            "\b": "\\b"}  # fmt: skip
_BARE = r'[^"\\\x00-\x1f]'
_CONTROLS = [chr(code) for code in range(32) if chr(code) not in _ESCAPES]
_IMPORT = re.compile(r"^%import common\.(\w+) -> (\w+)$", re.MULTILINE)
_ALIKE = frozenset({
    "DIGIT", "HEXDIGIT", "INT", "SIGNED_INT", "DECIMAL", "_EXP", "FLOAT", "SIGNED_FLOAT",
    "NUMBER", "SIGNED_NUMBER", "LCASE_LETTER", "UCASE_LETTER", "LETTER", "WORD", "CNAME",
})  # fmt: skip
"""Terminals of the library whose texts have nothing to be escaped."""
_SPACES = {
    "LF": r"/\n/", "CR": r"/\r/", "NEWLINE": r"/(\r?\n)+/", "WS_INLINE": r"/[ \t]+/",
    "WS": r"/[ \t\f\r\n]+/",
}  # fmt: skip
_FLAGS = frozenset({"", "s"})
_DEEPEST = 16  # groups within each other; each is read once more for each that it is in


@dataclass(frozen=True, slots=True)
class Embedded:
    """``start`` is the name of the rule to refer to; ``rules`` are lines of Lark."""

    start: str
    rules: str


def embed_in_json(text: str, prefix: str, *, param: str) -> Embedded:
    """Embed a grammar as :func:`causerie.chat.lark.embed` does, for texts within JSON.

    Raises ``SchemaRefused`` for what cannot be said there.
    """
    rules = embed(text, prefix, param=param)
    try:
        return Embedded(f"{prefix}_start", "\n".join(_translated_lines(rules)) + "\n")
    except (Refused, re.error) as refused:
        raise SchemaRefused(
            param, f"The grammar cannot be followed within JSON: {refused}"
        ) from None


def _translated_lines(rules: str) -> Iterator[str]:
    kept = {alias for name, alias in _IMPORT.findall(rules) if name in _ALIKE}
    for line in rules.splitlines():
        imported = _IMPORT.fullmatch(line)
        if imported is None:
            if re.match(r"\s*[\w?!-]+\[", line):
                raise Refused("Options of rules are not supported there.")
            out, read = [], 0
            for kind, token, start in tokens(line):
                out.append(line[read:start])
                out.append(_token_in_json(kind, token, kept))
                read = start + len(token)
            yield "".join([*out, line[read:]])
        elif imported[2] in kept:
            yield line
        elif imported[1] in _SPACES:
            yield f"{_rule_name(imported[2])}: {_regex_in_json(_SPACES[imported[1]])}"
        else:
            raise Refused(f"`common.{imported[1]}` is not known there.")


def _token_in_json(kind: str, token: str, kept: set[str]) -> str:
    if kind == "string":
        return _string_in_json(token)
    if kind == "regex":
        return _regex_in_json(token)
    if kind == "directive" or token in ("~", "..", "&"):
        raise Refused(f"`{token}` is not supported there.")
    if kind == "mark" and token not in kept and token.lstrip("_")[0].isupper():
        return _rule_name(token)
    return token


def _rule_name(terminal: str) -> str:
    return f"{terminal.lower()}_t"


def _string_in_json(token: str) -> str:
    text = token.removesuffix("i")
    value: str = json.loads(re.sub(r"\\x(..)", r"\\u00\1", text))
    runs = groupby(value, lambda character: character in _ESCAPES)
    parts = [
        part
        for escaped, run in runs
        for part in (map(_ESCAPES.__getitem__, run) if escaped else ("".join(run),))
    ]
    if any(control in value for control in _CONTROLS):
        raise Refused(f"{token[:40]} holds a control character.")
    flag = token[len(text) :]
    written = " ".join(quoted(part) + ("" if part.startswith("\\") else flag) for part in parts)
    return f"({written})" if len(parts) > 1 else written or '""'


def _regex_in_json(token: str) -> str:
    body, _, flags = token[1:].rpartition("/")
    if flags not in _FLAGS:
        raise Refused(f"The flags of {token[:40]} are not supported there.")
    dot = "(?s:.)" if flags else r"[^\n]"
    found = [replace(one, text=dot) if one.text == DOT else one for one in pieces(body)]
    if any(piece.kind in ("start", "end") for piece in found):
        raise Refused("Anchors are not supported there.")
    if any(piece.depth > _DEEPEST for piece in found):
        raise Refused(f"{token[:40]} nests more than {_DEEPEST} groups.")
    return f"({_lark_expression(found)})"


def _lark_expression(found: Sequence[Piece]) -> str:
    if all(piece.kind != "atom" or not _matched_escapes(piece.text) for piece in found):
        text = "".join(piece.text for piece in found)
        return between_slashes(text) if text else '""'
    depth = min(piece.depth for piece in found)
    ways = [" ".join(_alternative_in_json(way)) for way in alternatives(found, depth)]
    return " | ".join(way or '""' for way in ways)


def _alternative_in_json(way: Sequence[Piece]) -> Iterator[str]:
    plain: list[Piece] = []  # neighbours that are one terminal
    for unit, quantifier in _quantified_units(way):
        if all(piece.kind != "atom" or not _matched_escapes(piece.text) for piece in unit):
            plain += [*unit, *quantifier]
            continue
        if plain:
            yield _lark_expression(plain)
            plain = []
        often = quantifier[0].text if quantifier else ""
        if len(unit) == 1:
            inside = _atom_in_json(unit[0].text, several=often in ("*", "+"))
        else:
            inside = _lark_expression(unit[1:-1])
        yield f"({inside}){often}"
    if plain:
        yield _lark_expression(plain)


def _quantified_units(way: Sequence[Piece]) -> Iterator[tuple[Sequence[Piece], Sequence[Piece]]]:
    at = 0
    while at < len(way):
        end = at + 1
        if way[at].kind == "open":
            while not (way[end].kind == "close" and way[end].depth == way[at].depth):
                end += 1
            end += 1
        behind = end + (end < len(way) and way[end].kind == "quantifier")
        yield way[at:end], way[end:behind]
        at = behind


@lru_cache(maxsize=1024)
def _matched_escapes(atom: str) -> list[str]:
    found = [short for plain, short in _ESCAPES.items() if re.fullmatch(atom, plain)]
    return found or ([""] if any(re.fullmatch(atom, each) for each in _CONTROLS) else [])


@lru_cache(maxsize=1024)
def _atom_in_json(text: str, *, several: bool) -> str:
    ways = [quoted(short) for short in _matched_escapes(text) if short]
    if text == "(?s:.)":
        ways.append(f"/{_BARE}{'+' * several}/")
    elif text.startswith("[") and text.endswith("]"):
        if any(re.fullmatch(text, chr(one)) for one in range(32, 0x250) if chr(one) not in '"\\'):
            ways.append(between_slashes(f"[{text}&&{_BARE}]{'+' * several}"))
    elif text.startswith("("):
        raise Refused("A class like this is not supported there.")
    if not ways:
        raise Refused("A control character is not supported there.")
    return " | ".join(ways)
