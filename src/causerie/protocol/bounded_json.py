"""Decode JSON from clients and providers at a bounded cost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")

SMALL = 16 * 1024  # bytes of a document that is cheap to decode in any case

_SLICE = 1024 * 1024
_TO_BRACKETS = bytes.maketrans(b"{}", b"[]")
_OF_VALUES = (b",", b":", b"[", b"{")  # after which there is a further one, or may be
_NOT_BRACKETS = bytes(code for code in range(256) if code not in b"[]{}")
_PLAINLY = bytes.maketrans(b"123456789E", b"0" * 9 + b"e")  # every digit as 0, every E as e
_HUGE = (b"e000", b"e+000", b"e-000")
_PRECISE = b"0" * 17


class Bounds(Struct, frozen=True):
    """The work that decoding one document may take; by default 45 ms on a current core.

    The cost depends on more than the size: an object of many keys, or a number like ``1e289``,
    takes a hundred times as long as text of the same length. So a linear scan in slices counts what
    is expensive before anything is decoded. Real requests pass: 16 MiB of text or ``data:`` images,
    thousands of messages, hundreds of tools.
    """

    nesting: int = 64  # arrays and objects inside one another
    values: int = 150_000  # values and keys together
    escapes: int = 1_200_000
    """Escapes in strings, of up to 15 ns: 16 MiB of source code pass, 7 MiB of JSON in a string."""
    exponents: int = 64  # numbers with an exponent of three digits or more; each may take 20 µs
    tens: int = 2_000  # numbers with an exponent from 10 on; each may take 1.5 µs
    precise: int = 30_000  # numbers of 17 digits or more, each 17 counted; each may take 0.5 µs
    digits: int = 400  # digits in a row; no double needs more
    bare: int = 2 * 1024 * 1024  # bytes outside strings, which are scanned to count the others


DEFAULT = Bounds()
REPLY = Bounds(
    values=1_000_000, exponents=1_000, tens=10_000, precise=100_000, bare=4 * 1024 * 1024
)
"""Bounds of a provider's reply, with room for log-probabilities of 20 times 4,000 tokens."""
ARGUMENTS = Bounds(nesting=2**31, values=25_000)  # of all past calls; their readers bound the depth


class TooMuchWork(msgspec.DecodeError):
    """Decoding would take too long; ``bound`` is the name of the exceeded bound."""

    def __init__(self, bound: str, why: str) -> None:
        super().__init__(why)
        self.bound = bound


def check(document: bytes, bounds: Bounds = DEFAULT) -> None:
    """Raise :class:`TooMuchWork` for a document that exceeds the bounds; invalid JSON may pass."""
    if len(document) > SMALL or not _is_small_document_surely_cheap(document, bounds):
        check_together((document,), bounds)


def check_together(documents: Iterable[bytes], bounds: Bounds = DEFAULT) -> None:
    scan = _Scan(bounds)
    for document in documents:
        start, size = 0, len(document)
        while start < size:
            piece = document[start : start + _SLICE]
            escapes = len(piece) - len(piece.rstrip(b"\\"))
            if escapes % 2 and start + len(piece) < size:  # never cut an escape in two
                piece = piece[:-1]
            scan.feed(piece)
            start += len(piece)
        scan.end_document()
    scan.finish()


def decode(document: bytes, type: type[T] | Any = Any, bounds: Bounds = DEFAULT) -> T:
    """Check and decode; raises ``DecodeError``, ``UnicodeDecodeError`` and ``RecursionError``."""
    check(document, bounds)
    return msgspec.json.decode(document, type=type)


def _is_small_document_surely_cheap(document: bytes, bounds: Bounds) -> bool:
    if document.count(b"[") + document.count(b"{") > bounds.nesting:
        return False
    if len(document) <= min(bounds.digits, bounds.exponents * len(_HUGE[0])):
        return True
    plain = document.translate(_PLAINLY)
    if plain.count(b"000") <= min(bounds.exponents, bounds.digits // 3):  # a part of all of them
        return True
    return (
        _count_occurrences(plain, _HUGE) <= bounds.exponents
        and b"0" * (bounds.digits + 1) not in plain
    )


class _Scan(Struct, eq=False):
    _bounds: Bounds
    _is_in_string: bool = False
    _quote_count: int = 0
    _escape_count: int = 0
    _value_count: int = 1
    _unquoted_byte_count: int = 0
    _unquoted_pieces: list[bytes] = []

    def feed(self, piece: bytes) -> None:
        bounds = self._bounds
        if b"\\" in piece:
            self._escape_count += piece.count(b"\\") - piece.count(b"\\\\")
            if self._escape_count > bounds.escapes:
                raise TooMuchWork("escapes", f"it has more than {bounds.escapes} escapes in texts")
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        quotes = piece.count(b'"')
        self._quote_count += quotes
        parts = piece.split(b'"')
        bare = b" ".join(parts[self._is_in_string :: 2]).translate(None, b" \t\r\n")
        self._is_in_string ^= bool(quotes % 2)
        self._value_count += _count_occurrences(bare, _OF_VALUES)
        if self._value_count > bounds.values or self._quote_count > 2 * bounds.values:
            raise TooMuchWork("values", f"it has more than {bounds.values} values and keys")
        self._unquoted_byte_count += len(bare)
        if self._unquoted_byte_count > bounds.bare:
            why = f"it has more than {bounds.bare} bytes of numbers and punctuation"
            raise TooMuchWork("bare", why)
        self._unquoted_pieces.append(bare)

    def end_document(self) -> None:
        self._is_in_string = False
        self._unquoted_pieces.append(b" ")

    def finish(self) -> None:
        bare, bounds = b"".join(self._unquoted_pieces), self._bounds
        plain = bare.translate(_PLAINLY)
        if _count_occurrences(plain, _HUGE) > bounds.exponents:
            why = f"it has more than {bounds.exponents} numbers such as 1e289"
            raise TooMuchWork("exponents", why)
        if _count_occurrences(plain, (b"e00", b"e+00")) > bounds.tens:
            raise TooMuchWork("tens", f"it has more than {bounds.tens} numbers such as 1.5e50")
        if b"0" * (bounds.digits + 1) in plain:
            raise TooMuchWork("digits", f"it has a number of more than {bounds.digits} digits")
        if plain.translate(None, b".").count(_PRECISE) > bounds.precise:
            why = f"it has more than {bounds.precise} numbers of {len(_PRECISE)} digits or more"
            raise TooMuchWork("precise", why)
        opened = bare.count(b"[") + bare.count(b"{")
        if opened > bounds.nesting and _is_nested_deeper(bare, bounds.nesting):
            why = f"it nests arrays and objects more than {bounds.nesting} deep"
            raise TooMuchWork("nesting", why)


def _count_occurrences(data: bytes, substrings: tuple[bytes, ...]) -> int:
    return sum(map(data.count, substrings))


def _is_nested_deeper(unquoted: bytes, max_depth: int) -> bool:
    # Each pass removes the innermost pairs. Text that is no JSON keeps brackets that close
    # nothing; then their number decides.
    brackets = unquoted.translate(_TO_BRACKETS, delete=_NOT_BRACKETS)
    for _ in range(max_depth):
        outer = brackets.replace(b"[]", b"")
        if len(outer) == len(brackets):
            break
        brackets = outer
    return b"[]" in brackets or brackets.count(b"[") > max_depth
