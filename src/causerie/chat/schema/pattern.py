"""Rewrites regular expressions into what ECMAScript, Rust and Python read alike.

A ``pattern`` is written in ECMAScript's dialect, enforced by a Rust engine and checked by Python.
It is refused where one of them cannot follow.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

MAX_LENGTH = 4096
LOOKS = "Look-arounds are not supported here; write what the text itself looks like."

_SPACE = " \\t-\\r\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_SETS = {"d": "0-9", "w": "A-Za-z0-9_", "s": _SPACE}
# Characters that are white space to any of the readers are not written where none may be.
_SETS_INVERTED = {**_SETS, "s": _SPACE + "\ufeff\\x1c-\\x1f\\x85"}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}
DOT = "[^\\n\\r\u2028\u2029]"
_ANY = "(?s:.)"
_KINDS = {"|": "or", "^": "start", "$": "end"}
_META = frozenset("\\.+*?()|[]{}^$")
_CLASS_META = frozenset("\\]^-[&~")
_QUANTIFIER = re.compile(r"[*+?]|\{([0-9]+)(,?)([0-9]*)\}")
_GROUP = re.compile(r"\((?:\?P?<[A-Za-z_][A-Za-z0-9_]*>|\?:|(?!\?))")
_AHEAD = re.compile(r"\(\?([=!])")
_PROPERTY = re.compile(r"[pP]\{[A-Za-z0-9_=]+\}")
_COUNTED = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\{[0-9]+(?:,[0-9]*)?\}|.", re.DOTALL)
_HEX = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]{1,6})\}")


class Refused(Exception):
    """The pattern cannot be followed; the message is the reason, a sentence."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A rewritten part of a pattern; ``depth`` counts the groups around it."""

    kind: str  # "atom", "quantifier", "open", "close", "or", "start" or "end"
    text: str
    depth: int


_START, _OR = Piece("start", "^", 0), Piece("or", "|", 0)


def searches(pattern: str) -> list[str]:
    """Return rewritten patterns: a text matches the pattern if every one is found in it."""
    return ["".join(piece.text for piece in parts) for parts in _split_lookaheads(pattern)]


def whole(pattern: str) -> str:
    """Return the pattern rewritten to match whole texts: without ``^`` and ``$`` at its ends."""
    parts = pieces(pattern)
    out = []
    for before, piece, after in zip([_OR, *parts], parts, [*parts[1:], _OR], strict=False):
        if piece.kind not in ("start", "end"):
            out.append(piece.text)
        elif piece.depth or (before if piece.kind == "start" else after).kind != "or":
            raise Refused("`^` and `$` may only stand at the very start and end of the pattern.")
    return "".join(out)


def anywhere(pattern: str) -> list[str]:
    """Return patterns that each match the whole of every text in which the pattern is found."""
    return [
        "|".join(map(_expand_to_whole_text, split_at_bars(parts)))
        for parts in _split_lookaheads(pattern)
    ]


def _split_lookaheads(pattern: str) -> list[list[Piece]]:
    reader = _Reader(pattern)
    aheads = [
        _rewrite_negative_lookahead(ahead) if forbids else _rewrite_lookahead(ahead)
        for forbids, ahead in reader.ahead()
    ]
    parts = reader.read()
    if aheads and len(split_at_bars(parts)) > 1:
        raise Refused(LOOKS)
    return [parts, *aheads]


def between_slashes(pattern: str) -> str:
    """Return a rewritten pattern as the terminal of a Lark grammar."""
    return "/" + pattern.replace("/", "\\/") + "/"


def split_at_bars(parts: Sequence[Piece], depth: int = 0) -> list[list[Piece]]:
    """Split a pattern at each ``|`` that stands inside exactly ``depth`` groups."""
    ways: list[list[Piece]] = [[]]
    for piece in parts:
        if piece.kind == "or" and piece.depth == depth:
            ways.append([])
        else:
            ways[-1].append(piece)
    return ways


def _expand_to_whole_text(alternative: list[Piece]) -> str:
    start = bool(alternative) and alternative[0].kind == "start"
    end = len(alternative) > start and alternative[-1].kind == "end"
    inside = alternative[start : len(alternative) - end]
    if any(piece.kind in ("start", "end") for piece in inside):
        raise Refused("`^` and `$` may only stand at the very start and end of the pattern.")
    text = "".join(piece.text for piece in inside)
    return f"{'' if start else f'{_ANY}*'}{text}{'' if end else f'{_ANY}*'}"


def _rewrite_lookahead(inner_pieces: Sequence[Piece]) -> list[Piece]:
    found: list[Piece] = []
    for way in split_at_bars(inner_pieces):
        anchored = bool(way) and way[0].kind == "start"
        found += [_OR] if found else []
        found += way if anchored else [_START, *way]
    return found


def _rewrite_negative_lookahead(inner_pieces: Sequence[Piece]) -> list[Piece]:
    match inner_pieces[1:] if inner_pieces[:1] == [_START] else inner_pieces:
        case [Piece("atom", run), Piece("quantifier", "*" | "+" as often), Piece("end") as end] if (
            not run.startswith(("[^", "(?"))
        ):
            members = run[1:-1] if run.startswith("[") else run
            members = members.replace(_SETS["s"], _SETS_INVERTED["s"])
            other = Piece("atom", f"[^{members}]", 0)
            return [other] if often == "*" else [_START, end, _OR, other]
    raise Refused(LOOKS)


def counts_groups(pattern: str) -> bool:
    """Return whether ``{n}`` in a pattern repeats a group of varying length, such as a word."""
    varying: list[bool] = []  # the groups that are open
    closed = False  # one of varying length has just ended
    for token in _COUNTED.findall(pattern):
        counts = token[0] == "{" and len(token) > 1
        if counts and closed:
            return True
        closed = token == ")" and bool(varying) and varying.pop()
        if token == "(":
            varying.append(False)
        elif varying and (counts or closed or token in ("*", "+")):
            varying[-1] = True
    return False


def pieces(pattern: str) -> list[Piece]:
    """Return the parts of a pattern in order; raise :class:`Refused`."""
    return _Reader(pattern).read()


class _Reader:
    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_LENGTH:
            raise Refused(f"The pattern is longer than {MAX_LENGTH} characters.")
        self._pattern = pattern
        self._offset = 0
        self._group_depth = 0
        self._written_pieces: list[Piece] = []

    def read(self) -> list[Piece]:
        while self._offset < len(self._pattern):
            self._read_piece()
        if self._group_depth:
            raise Refused("A group is opened with `(` and never closed.")
        return self._written_pieces

    def ahead(self) -> Iterator[tuple[bool, list[Piece]]]:
        if not self._pattern.startswith("^"):
            return
        self._read_piece()
        while found := _AHEAD.match(self._pattern, self._offset):
            before, self._written_pieces, self._offset = self._written_pieces, [], found.end()
            while self._group_depth or not self._pattern.startswith(")", self._offset):
                if self._offset >= len(self._pattern):
                    raise Refused("A group is opened with `(` and never closed.")
                self._read_piece()
            yield found[1] == "!", self._written_pieces
            self._written_pieces = before
            self._offset += 1

    def _read_piece(self) -> None:
        character = self._pattern[self._offset]
        quantifier = _QUANTIFIER.match(self._pattern, self._offset)
        if quantifier is not None:
            self._read_quantifier(quantifier)
        elif character == "(":
            self._read_group_opening()
        elif character == ")":
            if not self._group_depth:
                raise Refused("A `)` closes no group; write `\\)` for the character.")
            self._group_depth -= 1
            self._offset += 1
            self._add_piece("close", ")")
        elif character == "[":
            self._add_piece("atom", self._read_character_class())
        elif character == "\\":
            self._add_piece("atom", self._read_rewritten_escape())
        elif character in _KINDS:
            self._offset += 1
            self._add_piece(_KINDS[character], character)
        else:
            self._offset += 1
            self._add_piece(
                "atom", DOT if character == "." else _escape_character(character, _META)
            )

    def _add_piece(self, kind: str, text: str) -> None:
        self._written_pieces.append(Piece(kind, text, self._group_depth))

    def _read_quantifier(self, match: re.Match[str]) -> None:
        before = self._written_pieces[-1].kind if self._written_pieces else "open"
        if before == "quantifier":
            raise Refused(f"`{match[0]}` repeats a repetition; put the inner one into a group.")
        if before not in ("atom", "close"):
            raise Refused(f"`{match[0]}` has nothing before it to repeat.")
        low, comma, high = match.group(1), match.group(2), match.group(3)
        if low is not None and high and (not comma or int(high) < int(low)):
            raise Refused(f"`{match[0]}` counts backwards.")
        self._add_piece("quantifier", match[0])
        self._offset = match.end()
        if self._pattern[self._offset : self._offset + 1] == "?":
            self._offset += 1  # lazy: the same texts match, only found in another order

    def _read_group_opening(self) -> None:
        rest = self._pattern[self._offset : self._offset + 4]
        if rest.startswith(("(?=", "(?!", "(?<=", "(?<!")):
            raise Refused(LOOKS)
        opening = _GROUP.match(self._pattern, self._offset)
        if opening is None:
            raise Refused("Inline flags are not supported; spell the alternatives out.")
        self._offset = opening.end()
        self._add_piece("open", "(?:")
        self._group_depth += 1

    def _read_rewritten_escape(self) -> str:
        self._offset += 1
        letter = self._peek_escaped_letter_or_refuse()
        if letter.lower() in _SETS:
            self._offset += 1
            if letter.isupper():
                return f"[^{_SETS_INVERTED[letter.lower()]}]"
            return f"[{_SETS[letter]}]"
        if letter in "bB":
            raise Refused("Word boundaries (`\\b`) are not supported.")
        return self._read_property() or _escape_character(self._read_escaped_character(), _META)

    def _read_property(self) -> str:
        if not (found := _PROPERTY.match(self._pattern, self._offset)):
            return ""
        self._offset = found.end()
        return "\\" + found.group()

    def _peek_escaped_letter_or_refuse(self) -> str:
        if self._offset >= len(self._pattern):
            raise Refused("The pattern ends with a lone backslash.")
        return self._pattern[self._offset]

    def _read_escaped_character(self) -> str:
        letter = self._peek_escaped_letter_or_refuse()
        found = _HEX.match(self._pattern, self._offset)
        if found is not None:
            self._offset = found.end()
            code = int(next(digits for digits in found.groups() if digits), 16)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                raise Refused(f"`\\{found[0]}` is not a character; write the character itself.")
            return chr(code)
        self._offset += 1
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        following = self._pattern[self._offset : self._offset + 1]
        if letter == "0" and not following.isdigit():
            return "\0"
        if letter == "c" and following.isascii() and following.isalpha():
            self._offset += 1
            return chr(ord(following) % 32)
        if letter.isdigit() or letter == "k":
            raise Refused("Back-references are not supported.")
        if letter.isascii() and letter.isalpha():
            raise Refused(f"The escape `\\{letter}` is not supported.")
        return letter

    def _read_character_class(self) -> str:
        self._offset += 1
        negated = self._pattern.startswith("^", self._offset)
        self._offset += negated
        members, inverse = self._read_class_members()
        if {"s", "d", "w"} & inverse & {name for name in inverse if _SETS[name] in members}:
            if negated:
                raise Refused("A class that excludes every character matches nothing.")
            return _ANY
        if not members and not inverse:
            if negated:
                return _ANY
            raise Refused("The empty class `[]` matches nothing; write `\\[\\]` for brackets.")
        if not inverse:
            return f"[{'^' if negated else ''}{''.join(members)}]"
        if negated:
            raise Refused("`\\D`, `\\W` and `\\S` are not supported in a class that begins `[^`.")
        options = [f"[^{_SETS_INVERTED[name]}]" for name in sorted(inverse)]
        if members:
            options.append(f"[{''.join(members)}]")
        return f"(?:{'|'.join(options)})"

    def _read_class_members(self) -> tuple[list[str], set[str]]:
        members: list[str] = []
        inverse: set[str] = set()
        while True:
            if self._offset >= len(self._pattern):
                raise Refused("A class is opened with `[` and never closed.")
            if self._pattern[self._offset] == "]":
                self._offset += 1
                return members, inverse
            low = self._read_class_member(inverse)
            if low is None or len(low) > 1:
                members += [low] if low else []
                continue
            rest = self._pattern[self._offset : self._offset + 2]
            if len(rest) < 2 or rest[0] != "-" or rest[1] == "]":
                members.append(_escape_character(low, _CLASS_META))
                continue
            self._offset += 1
            high = self._read_class_member(inverse)
            if high is None or len(high) != 1 or high < low:
                raise Refused(f"The range from {low!r} in a class has no proper end.")
            ends = _escape_character(low, _CLASS_META), _escape_character(high, _CLASS_META)
            members.append("-".join(ends))

    def _read_class_member(self, inverse_sets: set[str]) -> str | None:
        character = self._pattern[self._offset]
        self._offset += 1
        if character != "\\":
            return character
        letter = self._peek_escaped_letter_or_refuse()
        if letter.lower() in _SETS:
            self._offset += 1
            if letter.islower():
                return _SETS[letter]
            inverse_sets.add(letter.lower())
            return None
        if letter == "b":
            self._offset += 1
            return "\b"
        return self._read_property() or self._read_escaped_character()


def _escape_character(character: str, special: Collection[str]) -> str:
    if character in special:
        return "\\" + character
    if 0xD800 <= ord(character) <= 0xDFFF:
        raise Refused("The pattern holds half of a surrogate pair.")
    if ord(character) < 32 or ord(character) == 127:
        return f"\\x{ord(character):02x}"
    return character
