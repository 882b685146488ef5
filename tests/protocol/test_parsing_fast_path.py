"""The quick way to read a request gives what reading field by field gives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from causerie.errors import InvalidRequest
from causerie.protocol.body import ObjectReader
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.request import ChatRequest, Message
from causerie.providers.dialect import Dialect
from causerie.providers.dialects import DIALECTS
from causerie.providers.outgoing import outgoing
from causerie.shapes.chat_completions.reader import read_fast_path, read_fields

SAID: st.SearchStrategy[dict[str, object]] = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant"]), "content": st.text()},
    optional={"name": st.none(), "tool_calls": st.none() | st.just([]), "tool_call_id": st.none()},
)
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3)
)
ORDINARY = st.fixed_dictionaries(
    {"model": st.text(min_size=1, max_size=4), "messages": st.lists(SAID, min_size=1, max_size=3)},
    optional={
        "stream": st.booleans() | st.none(),
        "stream_options": st.fixed_dictionaries({"include_usage": st.booleans()}) | st.none(),
        "max_tokens": st.integers(1, 2) | st.none(),
        "max_completion_tokens": st.integers(1, 2) | st.none(),
        "temperature": st.floats(0, 2) | st.none(),
        "top_p": st.floats(0, 1, exclude_min=True) | st.none(),
    },
)
BODIES = ORDINARY | st.fixed_dictionaries(
    {
        "model": st.text(max_size=4) | ODD,
        "messages": st.lists(SAID | st.dictionaries(st.text(), ODD), max_size=3) | ODD,
    },
    optional={
        "stream": st.booleans() | ODD,
        "stream_options": st.fixed_dictionaries({"include_usage": st.booleans()}) | ODD,
        "max_tokens": st.integers(-2, 9) | ODD,
        "max_completion_tokens": st.integers(-2, 9) | ODD,
        "temperature": st.floats(-1, 3) | ODD,
        "top_p": st.floats(-1, 2) | ODD,
        "top_k": st.integers(0, 5),
        "user": st.text(),
    },
)


def plain(request: ChatRequest) -> ChatRequest:
    """The same request, as it is made of what was read field by field."""
    messages = tuple(Message(*structs.astuple(one)) for one in request.messages)
    return structs.replace(request, messages=messages, sent=without_null(request.document))


def without_null(body: Mapping[str, Any]) -> dict[str, Any]:
    """A body that says nothing of what it has not, nor its messages of what they have not."""
    said = [{name: one[name] for name in one if one[name]} for one in body["messages"]]
    return {name: body[name] for name in body if body[name] is not None} | {"messages": said}


@given(BODIES)
def test_both_ways_agree(body: dict[str, Any]) -> None:
    document = json.loads(json.dumps(body))
    quick = read_fast_path(json.dumps(body).encode(), ParsingRules())
    if quick is None:
        return
    try:
        careful = read_fields(ObjectReader(document), ParsingRules())
    except InvalidRequest as refused:
        raise AssertionError(f"read the quick way, refused the other: {refused}") from refused
    assert plain(quick) == structs.replace(careful, sent=without_null(document))


@given(BODIES, st.sampled_from(list(DIALECTS.values())))
def test_an_upstream_gets_the_same_either_way(body: dict[str, Any], dialect: Dialect) -> None:
    quick = read_fast_path(json.dumps(body).encode(), ParsingRules())
    if quick is None:
        return
    careful = structs.replace(quick, sent=body)
    one, other = (outgoing(request, dialect, "theirs") for request in (quick, careful))
    assert without_null(json.loads(one.body)) == without_null(json.loads(other.body))
    assert (one.changes, one.streamed) == (other.changes, other.streamed)


def test_an_ordinary_request_is_read_the_quick_way() -> None:
    ordinary = {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 5,
        "temperature": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    quick = read_fast_path(json.dumps(ordinary).encode(), ParsingRules())
    assert quick is not None
    assert plain(quick) == read_fields(ObjectReader(ordinary), ParsingRules())


def test_too_many_messages_are_not_read_the_quick_way() -> None:
    many = {"model": "m", "messages": [{"role": "user", "content": "Hi"}] * 3}
    assert read_fast_path(json.dumps(many).encode(), ParsingRules(max_messages=2)) is None
