"""The work of decoding is bounded, and nothing that real requests hold is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from casekit import each_of, examples
from hypothesis import given, settings
from hypothesis import strategies as st

from causerie.errors import InvalidRequest
from causerie.protocol.bounded_json import (
    ARGUMENTS,
    SMALL,
    Bounds,
    TooMuchWork,
    check,
    check_together,
    decode,
)
from causerie.protocol.parameters import ParsingRules
from causerie.shapes.chat_completions.reader import parse

MIB = 1024 * 1024
TIGHT = Bounds(nesting=3, values=40, exponents=2, digits=6, precise=2)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('\\"[]{},:eE0 ')),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=40,
)


def counted(value: Any) -> tuple[int, int]:
    """Values and keys of a document, and how deep it is."""
    if isinstance(value, dict):
        inner = [counted(each) for each in value.values()]
        return 1 + len(inner) + sum(n for n, _ in inner), 1 + max((d for _, d in inner), default=0)
    if isinstance(value, list):
        inner = [counted(each) for each in value]
        return 1 + sum(n for n, _ in inner), 1 + max((d for _, d in inner), default=0)
    return 1, 0


def reason_of(text: bytes, bounds: Bounds) -> str:
    """Why a document is refused; empty where it is not."""
    try:
        check(text, bounds)
    except TooMuchWork as error:
        return str(error)
    return ""


@given(value=json_values, pad=st.sampled_from([0, SMALL + 1]), spaced=st.booleans())
def test_what_real_documents_hold_is_decoded_unchanged(value: Any, pad: int, spaced: bool) -> None:
    separators = (", ", ": ") if spaced else (",", ":")
    text = json.dumps([value, "\\" * pad], separators=separators, ensure_ascii=spaced).encode()
    assert decode(text, Any, Bounds(nesting=200)) == [value, "\\" * pad]


@given(value=json_values)
def test_what_exceeds_a_bound_is_refused_and_nothing_else(value: Any) -> None:
    large = [value, "x" * SMALL]  # small ones need no count
    text = json.dumps(large).encode()
    values, depth = counted(large)
    empty = text.count(b"[]") + text.count(b"{}")  # in text too: the count may only be too high
    reason = reason_of(text, Bounds(values=100, nesting=4))
    if "deep" in reason:
        assert depth > 4
    elif "values" in reason:
        assert values + empty > 100
    else:
        assert not reason
        assert depth <= 4
        assert values <= 100


@each_of(
    ("text", "why"),
    [
        (b"[" * 65 + b"]" * 65, "64 deep"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "64 deep"),
        (b"[" + b"1," * 150_000 + b"1]", "150000 values"),
        (b'["' + b'","' * 200_000 + b'"]', "150000 values"),
        (b"[" + b"1234567890123456789e289," * 699_038 + b"1]", "bytes of numbers"),
        (b"[" + b"1234567890123456789e289," * 80_000 + b"1]", "numbers such as 1e289"),
        (b"[" + b"1e289," * 20_000 + b"1]", "numbers such as 1e289"),
        (b"[" + b"1E-0300," * 20_000 + b"1]", "numbers such as 1e289"),
        (b"[" + b"7" * 4_000 + b"]", "400 digits"),
        (b"[" + (b"0." + b"0" * 300 + b",") * 50_000 + b"1]", "bytes of numbers"),
        (b"[0." + b"0" * 401 + b"]", "400 digits"),
        (b"[" + b"0.1111111111," * 190_000 + b"1]", "150000 values"),
        (b"[" + b"1e289," * 200 + b"1]", "numbers such as 1e289"),
        (b"[" + b"1E+289," * 200 + b"1]", "numbers such as 1e289"),
        (b"[" + b"88526.00000000000009762e92," * 50_000 + b"1]", "such as 1.5e50"),
        (b"[" + (b"1." + b"3" * 297 + b",") * 5_000 + b"1]", "17 digits"),
        (b"[" + b"18014398509481983.0," * 60_000 + b"1]", "17 digits"),
        (b"[" + b"2147483647.9999998807," * 60_000 + b"1]", "17 digits"),
        (b"[" + b"19614173088710564.0000000000000000004779," * 30_000 + b"1]", "17 digits"),
        (b'["' + b"\\n" * (8 * MIB) + b'"]', "1200000 escapes"),
        (b'["' + b"\\\\" * (2 * MIB) + b'"]', "1200000 escapes"),
        (b'["' + b"\\u4e2d" * (2 * MIB) + b'"]', "1200000 escapes"),
    ],
)
def test_expensive_documents(text: bytes, why: str) -> None:
    with pytest.raises(TooMuchWork, match=why):
        check(text)


@each_of(
    "text",
    [
        b'["' + b"7" * 4_000 + b'"]',
        b'["' + b"[" * 100_000 + b'"]',
        b'["' + b"1e289," * 100_000 + b'"]',
        b'["' + b'\\"[1e289,' * 100_000 + b'"]',
        b'["' + b"\\\\" * 1_150_000 + b'"]',
        b'["' + b'    print(\\"%s\\\\n\\" % name)\\n' * (MIB // 8) + b'"]',
        b'["' + b"x" * (16 * MIB - 4) + b'"]',
        b"[" + b" " * (8 * MIB) + b"1]",
        b"[" + b"-1.25e-05," * 60_000 + b"1]",
        b"[" + b"-0.00018785195425152779," * 24_000 + b"1]",
        b"[" + b"true,false," * 60_000 + b"null]",
    ],
)
def test_texts_and_usual_numbers_of_any_size_are_admitted(text: bytes) -> None:
    assert decode(text) == json.loads(text)


@given(cut=st.integers(0, 12), run=st.integers(0, 9), quoted=st.booleans())
def test_escapes_are_not_cut_in_two(cut: int, run: int, quoted: bool) -> None:
    """Wherever a slice ends within a run of backslashes, what is in strings stays there."""
    filling = MIB - 12 + cut
    text = b'["' + b"x" * filling + b"\\\\" * run + (b'\\"' if quoted else b"") + b'[[[[",[[1]]]'
    check(text, Bounds(nesting=3))
    with pytest.raises(TooMuchWork):
        check(text, Bounds(nesting=2))


@given(noise=st.binary(max_size=200), bounds=st.sampled_from([Bounds(), TIGHT]))
def test_bytes_that_are_no_json_break_nothing(noise: bytes, bounds: Bounds) -> None:
    for text in (noise, noise + b'"' + b"x" * SMALL):
        try:
            decode(text, Any, bounds)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue


def test_a_request_says_which_bound_it_exceeds() -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"Hi"}],"a":[%s1]}'
    with pytest.raises(InvalidRequest, match="such as 1e289") as refused:
        parse(body % (b"1e289," * 5_000), ParsingRules())
    assert refused.value.code == "invalid_json"
    with pytest.raises(InvalidRequest, match=r"or have the operator raise `server\.max_values`\."):
        parse(body % (b"1," * 200_000), ParsingRules())
    with pytest.raises(InvalidRequest, match=r"more than 400 digits; send less of it\.$"):
        parse(body % (b"7" * 4_000 + b","), ParsingRules())


def test_a_repeated_field_of_a_fast_request_is_counted_too() -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"Hi"}],%s"top_p":1}'
    with pytest.raises(InvalidRequest, match="such as 1e289"):
        parse(body % (b'"temperature":1e289,' * 5_000), ParsingRules())


COSTLY = st.one_of(
    st.sampled_from([b"1e289", b"1.7E308", b"2e-308", b"1234567890123456789e289"]),
    st.builds(
        lambda whole, part, exponent: f"{whole}.{part}e{exponent}".encode(),
        st.integers(0, 10**300),
        st.from_regex(r"0{0,320}[0-9]{1,70}", fullmatch=True),
        st.integers(-99, 8),
    ),
    st.builds(
        lambda part, exponent: f"{part}e{exponent}".encode(), st.floats(1, 9), st.integers(10, 99)
    ),
)


@settings(max_examples=examples(40))
@given(numbers=st.lists(COSTLY, min_size=1, max_size=4), size=st.sampled_from([SMALL, MIB // 2]))
def test_costly_numbers_are_few_in_what_is_admitted(numbers: list[bytes], size: int) -> None:
    """Numbers that take microseconds each are counted before decoding, in any repetition."""
    text = b",".join(numbers)
    times = (size - 2) // (len(text) + 1)
    if reason_of(b"[" + b",".join([text] * times) + b"]", Bounds()):
        return
    exponents = [int(number.lower().partition(b"e")[2] or 0) for number in numbers]
    assert times * sum(abs(each) >= 100 for each in exponents) <= Bounds().exponents
    if size == SMALL:  # which holds few of those that are less expensive
        return
    assert times * sum(10 <= each < 100 for each in exponents) <= Bounds().tens
    mantissas = [number.lower().partition(b"e")[0].replace(b".", b"") for number in numbers]
    assert times * sum(len(each) >= 17 for each in mantissas) <= Bounds().precise


def test_documents_together_may_not_exceed_what_one_may() -> None:
    whole, broken = b'{"a":[' + b"1," * 500 + b"1]}", b'{"a":"' + b"1," * 500
    check_together([whole] * 49, ARGUMENTS)
    check_together([broken] * 500, ARGUMENTS)  # all of it text, however it goes on
    with pytest.raises(TooMuchWork, match="25000 values"):
        check_together([whole, broken] * 50, ARGUMENTS)
    with pytest.raises(TooMuchWork, match="such as 1e289"):
        check_together([b"[1e289]"] * 65, ARGUMENTS)


def test_numbers_are_not_altered() -> None:
    exact = [2**64 - 1, -(2**63), 1e289, 5e-324, math.pi, 10**30, 1.7976931348623157e308]
    assert decode(json.dumps(exact).encode()) == exact
    with pytest.raises(msgspec.DecodeError):
        decode(b"[1e400]")
