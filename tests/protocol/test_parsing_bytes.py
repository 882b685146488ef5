"""Any bytes give a request or a refusal, never anything else."""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from typing import Any

import msgspec
import pytest
from casekit import each_of, examples
from hypothesis import given, settings
from hypothesis import strategies as st

from causerie.errors import InvalidRequest
from causerie.protocol.parameters import HINT_NAMES, HONOURED, REFUSED, ParsingRules
from causerie.protocol.request import ChatRequest
from causerie.shapes.chat_completions.reader import parse

MINIMAL = b'{"model":"m","messages":[{"role":"user","content":"%s"}]%s}'


def attempt(body: bytes, rules: ParsingRules | None = None) -> ChatRequest | InvalidRequest:
    try:
        return parse(body, rules or ParsingRules())
    except InvalidRequest as error:
        return error


def code(body: bytes) -> str | None:
    result = attempt(body)
    return result.code if isinstance(result, InvalidRequest) else None


@each_of(
    "body",
    [
        b"",
        b" \n",
        b"null",
        b"[]",
        b"3",
        b"{",
        b'{"model":}',
        b"\xef\xbb\xbf{}",
        b'{"model":"\xff"}',
        b'{"model":"\\ud800"}',
        b'{"model":"\xed\xa0\x80"}',
        b'{"temperature":NaN}',
        b'{"temperature":Infinity}',
        b'{"temperature":1e999}',
        b'{"seed":' + b"9" * 100_000 + b"}",
        b"{} {}",
        b'{"a":1,}',
        b"{'a':1}",
        "{}".encode("utf-16"),
        b"\x00" * 100,
        b"[" * 1_000_000,
        b"[" * 1_000_000 + b"]" * 1_000_000,
        b'{"a":' * 100_000,
        b"]" * 1000,
        b'"' * 1_000_000,
        b"\\" * 1_000_000,
        b"[" + b"0," * 2_000_000 + b"0]",
        b"[" + b'"",' * 2_000_000 + b'""]',
    ],
    ids=lambda body: repr(body[:24]),
)
def test_what_is_not_one_json_object_is_refused(body: bytes) -> None:
    assert code(body) == "invalid_json"


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (gzip.compress(b"{}" * 9), "gzip"),
        (gzip.compress(b"{}" * 9_000_000), "gzip"),
        (zlib.compress(b"{}" * 9), "zlib"),
        (b"\x28\xb5\x2f\xfd" + b"\x00" * 30, "zstd"),
    ],
    ids=["small", "large", "zlib", "zstd"],
)
def test_a_body_that_looks_compressed_is_named_so(body: bytes, name: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(f"looks compressed ({name})")):
        parse(body, ParsingRules())


def test_why_it_is_no_json_is_told_without_the_decoders_own_signs() -> None:
    with pytest.raises(InvalidRequest, match=re.escape("(number out of range);")):
        parse(b'{"temperature":1e999}', ParsingRules())


def test_nesting_is_counted_outside_strings() -> None:
    def nested(depth: int) -> bytes:
        inside = b"[" * (depth - 1) + b"]" * (depth - 1)  # the body itself is one more
        return MINIMAL % (b"x", b',"extra":' + inside)

    assert code(nested(64)) is None
    assert code(nested(65)) == "invalid_json"
    assert code(MINIMAL % (b"[" * 1000 + b'\\"{\\\\', b"")) is None
    mixed = b'{"a":[' * 40 + b"]}" * 40
    assert code(MINIMAL % (b"x", b',"extra":' + mixed)) == "invalid_json"


def test_the_last_of_two_equal_keys_counts() -> None:
    request = attempt(MINIMAL % (b"x", b',"n":1,"n":2'))
    assert isinstance(request, ChatRequest)
    assert request.n == 2


def test_a_large_text_is_read() -> None:
    request = attempt(MINIMAL % (b'a\\n\\u00e9\\"' * 350_000, b""))
    assert isinstance(request, ChatRequest)
    assert len(request.messages[0].text) == 1_400_000


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.sampled_from(["user", "assistant", "tool", "function", "auto", "required", "none"])
    | st.sampled_from(["json_schema", "allowed_tools", "text", "image_url", "high", "data:"])
)
KEYS = [
    "role",
    "content",
    "name",
    "type",
    "text",
    "function",
    "arguments",
    "tool_calls",
    "tool_call_id",
    "id",
    "parameters",
    "strict",
    "json_schema",
    "schema",
    "json",
    "regex",
    "choice",
    "grammar",
    "mode",
    "tools",
    "allowed_tools",
    "effort",
    "max_tokens",
    "enabled",
    "exclude",
    "enable_thinking",
    "thinking",
    "include_usage",
    "image_url",
    "url",
    "reasoning_content",
]
anything: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=12,
)
names = st.sampled_from(sorted(HONOURED | HINT_NAMES | REFUSED.keys()))
user = {"role": "user", "content": "x"}
bodies = st.dictionaries(names, anything, max_size=6) | st.builds(
    lambda extra, messages: {"model": "m", "messages": [user, *messages], **extra},
    st.dictionaries(names.filter(lambda name: name not in {"model", "messages"}), anything),
    st.lists(anything, max_size=2),
)


@settings(max_examples=examples(400), deadline=None)
@given(document=anything | bodies, router=st.booleans(), strict=st.booleans())
def test_any_json_is_a_request_or_a_refusal(document: Any, router: bool, strict: bool) -> None:
    text = json.dumps(document).encode("utf-8", "surrogatepass")
    rules = ParsingRules(reasoning_object=router, reject_unknown=strict)
    result = attempt(text, rules)
    if isinstance(result, InvalidRequest):
        assert result.status == 400
        assert result.message
        msgspec.json.encode(result.body())
        return
    assert result.messages
    assert result.model
    values = [
        result.sampling.temperature,
        result.sampling.top_p,
        *result.sampling.logit_bias.values(),
    ]
    assert all(value is None or math.isfinite(value) for value in values)


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=64) | st.binary(max_size=16).map(lambda tail: MINIMAL % (tail, b"")))
def test_any_bytes_are_a_request_or_a_refusal(body: bytes) -> None:
    attempt(body)
