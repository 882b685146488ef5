"""Plain requests are read in one pass, as the reader of all others reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from casekit import each_of
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from causerie.protocol.body import ObjectReader
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.response import CompletionIdentity, ResponseContext
from causerie.shapes.responses.encoder import ResponseReply
from causerie.shapes.responses.reader import RESPONSES, _parse_fast_path, _Translation
from causerie.shapes.shape import ParsedRequest, PassingReply

RULES = ParsingRules()
CONTEXT = ResponseContext(CompletionIdentity("c", 1, "r"), "m", "f")
_TEXTS = st.text(min_size=1, max_size=8)
_ITEMS = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user"]), "content": _TEXTS},
    optional={"type": st.just("message")},
)
_BODIES = st.fixed_dictionaries(
    {"model": st.just("m"), "input": st.one_of(_TEXTS, st.lists(_ITEMS, min_size=1, max_size=3))},
    optional={
        "instructions": _TEXTS,
        "max_output_tokens": st.integers(1, 99),
        "stream": st.booleans(),
        "temperature": st.floats(0, 2),
        "top_p": st.floats(0.1, 1),
        "store": st.just(False),
    },
)


def whole(body: dict[str, Any]) -> ParsedRequest:
    return _Translation(ObjectReader(body)).parsed(RULES, "", 0)


def reply_of(parsed: ParsedRequest) -> tuple[Mapping[str, Any], ResponseReply]:
    """What the reply says again of its request, and all else of its form."""
    assert isinstance(parsed.reply, PassingReply)
    encoded = parsed.reply.encoded
    assert isinstance(encoded, ResponseReply)
    return encoded.echo(), structs.replace(encoded, echo=dict)


@given(_BODIES)
def test_both_readers_read_the_same(body: dict[str, Any]) -> None:
    fast, slow = _parse_fast_path(json.dumps(body).encode(), RULES), whole(body)
    assert fast is not None
    assert fast.places.messages == slow.places.messages
    assert reply_of(fast) == reply_of(slow)
    made, other = (structs.asdict(one.request) for one in (fast, slow))
    assert {**made["sent"].document()} == {**other["sent"]}
    assert made["native"].body == other["native"].body
    assert structs.replace(made["native"], sent={}) == structs.replace(other["native"], sent={})
    for name in ("sent", "messages", "native"):
        del made[name], other[name]
    assert made == other
    texts = [[(one.role, one.content) for one in each.request.messages] for each in (fast, slow)]
    assert texts[0] == texts[1]


@each_of(
    "body",
    [
        {"model": "m", "input": "Hi", "store": True},
        {"model": "m", "input": ""},
        {"model": "m", "input": []},
        {"model": "m", "input": "Hi", "max_output_tokens": 0},
        {"model": "m", "input": "Hi", "tools": []},
        {"model": "m", "input": [{"role": "assistant", "content": "Hi"}]},
        {"model": "", "input": "Hi"},
    ],
)
def test_all_others_are_left_to_the_whole_reader(body: dict[str, Any]) -> None:
    assert _parse_fast_path(json.dumps(body).encode(), RULES) is None


def test_a_plain_request_passes_as_it_was_sent() -> None:
    body = {"model": "m", "input": "Hi", "stream": True}
    parsed = RESPONSES.parse(json.dumps(body).encode(), RULES, {})
    assert parsed.request.native is not None
    assert parsed.request.native.body == body
