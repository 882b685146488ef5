"""Strings that remember their author give the same text as ordinary ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causerie.chat.taint import (
    AUTHOR,
    FINAL,
    USER,
    Traced,
    authored,
    final_end,
    joined,
    origin_of,
    user_spans,
)

_texts = st.text(alphabet="ab <|ßŉÅı \n\r\t", max_size=12)
_pieces = st.lists(st.tuples(_texts, st.sampled_from([AUTHOR, USER])), max_size=4)

_Operation = Callable[[str, str, str], object]
_OPERATIONS: dict[str, _Operation] = {
    "add": lambda s, a, b: s + a + b,
    "radd": lambda s, a, b: a + s,
    "mul": lambda s, a, b: s * 3,
    "slice": lambda s, a, b: s[1:-1],
    "step": lambda s, a, b: s[::-2],
    "iterate": lambda s, a, b: list(s),
    "join": lambda s, a, b: s.join([a, b, a]),
    "replace": lambda s, a, b: s.replace(a, b),
    "replace once": lambda s, a, b: s.replace(a, b, 1),
    "split": lambda s, a, b: s.split(),
    "split once": lambda s, a, b: s.split(None, 1),
    "split at": lambda s, a, b: s.split(a or "b"),
    "rsplit": lambda s, a, b: s.rsplit(None, 1),
    "rsplit at": lambda s, a, b: s.rsplit(a or "b", 1),
    "splitlines": lambda s, a, b: s.splitlines(),
    "keep lines": lambda s, a, b: s.splitlines(True),
    "partition": lambda s, a, b: s.partition(a or "b"),
    "rpartition": lambda s, a, b: s.rpartition(a or "b"),
    "strip": lambda s, a, b: s.strip(),
    "strip these": lambda s, a, b: s.strip(a),
    "lstrip": lambda s, a, b: s.lstrip(),
    "rstrip": lambda s, a, b: s.rstrip(a),
    "removeprefix": lambda s, a, b: s.removeprefix(a),
    "removesuffix": lambda s, a, b: s.removesuffix(a),
    "upper": lambda s, a, b: s.upper(),
    "lower": lambda s, a, b: s.lower(),
    "title": lambda s, a, b: s.title(),
    "capitalize": lambda s, a, b: s.capitalize(),
    "center": lambda s, a, b: s.center(20),
    "in": lambda s, a, b: (a in s, s == a, hash(s) == hash(str(s)), s.find(a), len(s)),
}


@given(pieces=_pieces, first=_texts, second=_texts)
def test_every_operation_gives_the_text_it_always_gives(
    pieces: list[tuple[str, int]], first: str, second: str
) -> None:
    plain = "".join(text for text, _ in pieces)
    traced = joined(Traced(text, origin) for text, origin in pieces)
    for name, operation in _OPERATIONS.items():
        result = operation(traced, authored(first), Traced(second))
        assert result == operation(plain, first, second), name
        for part in result if isinstance(result, list | tuple) else (result,):
            assert not isinstance(part, str) or len(origin_of(part)) == len(part), name


_OTHER_LETTERS = ("upper", "lower", "title", "capitalize")


@given(pieces=_pieces)
def test_no_operation_lets_a_user_become_the_author(pieces: list[tuple[str, int]]) -> None:
    """Users write only capital letters here, the author only small ones."""
    made = joined(
        Traced("".join("U" if origin else "a" for _ in text), origin) for text, origin in pieces
    )
    for name, operation in _OPERATIONS.items():
        result = operation(made, authored("a"), Traced("U"))
        for part in result if isinstance(result, list | tuple) else (result,):
            if isinstance(part, str) and name not in _OTHER_LETTERS:
                trusted = [
                    c for c, origin in zip(str(part), origin_of(part), strict=True) if not origin
                ]
                assert "U" not in "".join(trusted), name


def test_changed_case_keeps_the_place_of_each_author() -> None:
    text = authored("ab") + Traced("CD") + authored("ef")
    assert user_spans(text.upper()) == user_spans(text.lower()) == ((2, 4),)
    assert user_spans((authored("aß") + Traced("b")).upper()) == ((0, 4),)


def test_formatting_keeps_the_pattern_to_its_author() -> None:
    assert user_spans(authored("<%s> %s!") % (Traced("you"), authored("me"))) == ((1, 4),)
    assert user_spans(authored("%(a)s-%(b)5.1f") % {"a": authored("x"), "b": 2.0}) == ((2, 7),)
    assert user_spans(Traced("<%s>") % (authored("me"),)) == ((0, 4),)
    assert user_spans(authored("%d%% of %s") % (5, authored("it"))) == ((0, 1),)
    with pytest.raises(TypeError, match="not all arguments converted"):
        authored("%s") % ("a", "b")


def test_a_plain_string_is_a_users() -> None:
    assert user_spans("plain") == ((0, 5),)
    assert user_spans(authored("a") + "b" + authored("c")) == ((1, 2),)
    assert user_spans("".join([authored("lost")])) == ((0, 4),)


def test_the_end_of_the_final_text_is_known() -> None:
    text = authored("<a>") + Traced("go on ", FINAL) + authored("<e>")
    assert final_end(text) == 9
    assert final_end(text.replace(" ", "")) == 7
    assert final_end(authored("none")) is None


def test_origins_must_fit_the_text() -> None:
    with pytest.raises(ValueError, match="2 origins for 3 characters"):
        Traced("abc", b"\x00\x01")
