"""Calls as servers really send them: the same calls come of them however they are cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from casekit import each_of, examples
from hypothesis import given, settings
from hypothesis import strategies as st
from providerkit import chunk, read, reader

from causerie.errors import UpstreamFailed
from causerie.protocol.events import Event, Finished, ToolCallDelta, ToolCallStarted
from causerie.providers import calls
from causerie.providers.calls import _parse_json_or_none

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("look", "look_up", "clock")
]
LIMA, BONN = '{"place":"Lima"}', '{"place":"Bonn"}'
Call = tuple[str, str]


def piece(**fields: Any) -> dict[str, Any]:
    """A chunk with one piece of a call."""
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return chunk(tool_calls=[{**fields, "function": function}])


def made(events: Sequence[Event]) -> tuple[list[Call], str]:
    """Return the calls, and how the reply ended; ids are unique and short."""
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    ids: list[str] = []
    for event in events:
        if isinstance(event, ToolCallStarted):
            assert event.index == len(names)
            names[event.index], arguments[event.index] = event.name, ""
            ids.append(event.id)
        elif isinstance(event, ToolCallDelta):
            arguments[event.index] += event.arguments
    assert len(set(ids)) == len(ids)
    assert all(0 < len(each) <= 256 for each in ids)
    [end] = [event.reason for event in events if isinstance(event, Finished)]
    return [(names[index], arguments[index]) for index in names], end


def streamed(*chunks: dict[str, Any], finish: str = "tool_calls") -> list[Call]:
    calls, end = made(read(reader(tools=TOOLS), *chunks, chunk(finish)))
    assert end == ("tool_calls" if finish != "length" else "length")
    return calls


def plain(*calls: dict[str, Any], **message: Any) -> list[Call]:
    body = {"message": {"tool_calls": list(calls), **message}, "finish_reason": "tool_calls"}
    found, end = made(reader(tools=TOOLS).whole(json.dumps({"choices": [body]}).encode()))
    assert end == "tool_calls"
    return found


def entry(name: str, arguments: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **fields}


@each_of(
    "names",
    [
        ["look", "_up"],
        ["l", "ook", "_up"],
        ["look", "look_up"],
        ["look_up", "look_up"],
        ["look_up"],
    ],
)
@each_of("fields", [{"index": 0, "id": "a"}, {"index": 0}, {"id": "a"}, {}])
@each_of("apart", [True, False])
def test_a_name_in_pieces_or_said_again(
    names: list[str], fields: dict[str, Any], apart: bool
) -> None:
    pieces = [piece(name=name, **fields) for name in names]
    if apart:
        pieces.append(piece(arguments=LIMA, **fields))
    else:
        pieces[-1]["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] = LIMA
    assert streamed(*pieces) == [("look_up", LIMA)]


def test_a_name_whose_halves_are_the_same() -> None:
    tools = [{"type": "function", "function": {"name": "gogo", "parameters": {"type": "object"}}}]
    pieces = [piece(index=0, name="go"), piece(index=0, name="go", arguments="{}")]
    found, _ = made(read(reader(tools=tools), *pieces, chunk("tool_calls")))
    assert found == [("gogo", "{}")]


def test_a_name_that_is_whole_goes_out_at_once() -> None:
    one = reader(tools=TOOLS)
    events: list[Event] = []
    one.feed([json.dumps(piece(index=0, id="a", name="look_up")).encode()], events)
    assert events == [ToolCallStarted(0, "a", "look_up")]
    one.feed([json.dumps(piece(index=0, arguments='{"pl')).encode()], events)
    assert events[1:] == [ToolCallDelta(0, '{"pl')]


@pytest.mark.parametrize("name", ["lock", "look_up_more", "", "_up", "cl"])
def test_a_name_that_no_function_has_fails(name: str) -> None:
    with pytest.raises(UpstreamFailed):
        streamed(piece(index=0, id="a", name=name, arguments=LIMA))
    with pytest.raises(UpstreamFailed):  # the call is not left out of a reply that has a text
        streamed(chunk(content="I look."), piece(index=0, id="a", name=name, arguments=LIMA))
    with pytest.raises(UpstreamFailed):
        plain(entry(name, LIMA, id="a"))
    with pytest.raises(UpstreamFailed):
        read(reader(tools=[]), piece(index=0, name="look_up", arguments="{}"), chunk("tool_calls"))


@each_of("arguments", ['{"pla', "[1]", '"Lima"', "7", '{"a":1}]', '{"a":1,}', "{}x"])
@each_of("finish", ["tool_calls", "stop", None])
def test_arguments_that_are_no_object_fail(arguments: str, finish: str | None) -> None:
    with pytest.raises(UpstreamFailed):
        read(
            reader(tools=TOOLS),
            piece(index=0, id="a", name="look_up", arguments=arguments),
            chunk(finish),
        )
    with pytest.raises(UpstreamFailed):
        plain(entry("look_up", arguments))


def test_arguments_that_a_limit_cut_are_passed_on() -> None:
    cut = piece(index=0, id="a", name="look_up", arguments='{"pla')
    assert streamed(cut, finish="length") == [("look_up", '{"pla')]


@each_of("arguments", ["", " \n", "null", '""', None, {}, []])
def test_arguments_of_nothing_are_an_empty_object(arguments: Any) -> None:
    assert streamed(piece(index=0, id="a", name="clock", arguments=arguments)) == [("clock", "{}")]
    assert plain(entry("clock", arguments)) == [("clock", "{}")]


def test_arguments_that_are_written_twice_are_read_once() -> None:
    assert plain(entry("look_up", json.dumps(LIMA))) == [("look_up", LIMA)]


def test_calls_go_by_their_ids_whatever_their_index() -> None:
    first, second = {"index": 0, "id": "a"}, {"index": 0, "id": "b"}
    for name, other in (("clock", BONN), ("look_up", BONN)):
        assert streamed(
            piece(name="look_up", arguments=LIMA[:8], **first),
            piece(name=name, arguments=other[:8], **second),
            piece(arguments=LIMA[8:], **first),
            piece(arguments=other[8:], **second),
        ) == [("look_up", LIMA), (name, other)]


@each_of("again", [{"index": 0, "id": "a"}, {"index": 7, "id": "a"}, {"index": 0}])
@each_of("spaced", [LIMA, '{"place": "Lima"}'])
def test_a_call_that_comes_again_is_one(again: dict[str, Any], spaced: str) -> None:
    first = piece(index=0, id="a", name="look_up", arguments=LIMA)
    assert streamed(first, piece(name="look_up", arguments=spaced, **again)) == [("look_up", LIMA)]
    other = streamed(first, piece(name="look_up", arguments=BONN, **again))
    assert other == [("look_up", LIMA), ("look_up", BONN)]


def test_ids_that_cannot_be_used_are_replaced() -> None:
    for odd in ("k" * 257, "", "  ", None, True, ["a"], {"a": 1}):
        assert plain(entry("look_up", LIMA, id=odd)) == [("look_up", LIMA)]
        pieces = [piece(index=0, id=odd, name="look_up"), piece(index=0, id=odd, arguments=LIMA)]
        assert streamed(*pieces) == [("look_up", LIMA)]
    twice = plain(entry("look_up", LIMA, id="a"), entry("look_up", BONN, id="a"))
    assert twice == [("look_up", LIMA), ("look_up", BONN)]


def test_the_old_way_of_calling() -> None:
    call = {"name": "look_up", "arguments": LIMA}
    assert plain(function_call=call) == [("look_up", LIMA)]
    assert streamed(
        chunk(function_call={"name": "look_up", "arguments": ""}),
        chunk(function_call={"arguments": LIMA[:5]}),
        chunk(function_call={"arguments": LIMA[5:]}),
        finish="function_call",
    ) == [("look_up", LIMA)]
    assert plain(entry("look_up", LIMA, id="a"), function_call=call) == [("look_up", LIMA)]


def test_calls_that_the_server_makes_itself_are_passed_over() -> None:
    own = {"id": "s", "type": "web_search", "function": {"name": "search", "arguments": "{}"}}
    assert plain(own, entry("look_up", LIMA)) == [("look_up", LIMA)]


def test_the_work_of_repetitions_is_bounded() -> None:
    many = piece(index=0, id="a", name="clock", arguments="{}" * 5000)
    with pytest.raises(UpstreamFailed, match="1024 calls"):
        streamed(many)


OBJECTS = st.dictionaries(
    st.text(alphabet='ab"{}\\é', max_size=3),
    st.text(alphabet='x"{}[]\\é', max_size=4) | st.integers() | st.lists(st.none(), max_size=2),
    max_size=2,
)
CALLS = st.lists(st.tuples(st.sampled_from(["look", "look_up", "clock"]), OBJECTS), max_size=4)
STYLES = st.sampled_from(["indexed", "by id", "index 0", "repeated name", "no id"])


@given(CALLS, STYLES, st.booleans(), st.booleans(), st.booleans(), st.data())
@settings(deadline=None, max_examples=examples(150))
def test_any_way_to_send_calls_makes_the_same_calls(
    calls: list[tuple[str, dict[str, Any]]],
    style: str,
    interleaved: bool,
    message_behind: bool,
    again: bool,
    data: st.DataObject,
) -> None:
    """Names and arguments cut anywhere, by any address, in turns, and said again at the end."""
    wanted = [(name, json.dumps(given)) for name, given in calls]
    runs = [list(pieces_of(at, *call, style, data)) for at, call in enumerate(wanted)]
    if interleaved and style in ("indexed", "by id"):
        heads = [run.pop(0) for run in runs]  # calls begin in their order
        order = data.draw(st.permutations([at for at, run in enumerate(runs) for _ in run]))
        sent = heads + [runs[at].pop(0) for at in order]
    else:
        sent = [one for run in runs for one in run]
    whole = [entry(*call, id=f"c{at}") for at, call in enumerate(wanted)]
    if again and style != "no id":
        sent += [piece(index=at, id=f"c{at}", name=name, arguments=text)
                 for at, (name, text) in enumerate(wanted)]  # fmt: skip
    if message_behind and calls:
        sent.append({"choices": [{"message": {"tool_calls": whole}, "finish_reason": None}]})
    one = reader(tools=TOOLS)
    found, _ = made(read(one, *sent, chunk("stop")))
    assert found == wanted
    if calls:
        assert plain(*whole) == wanted


def pieces_of(
    at: int, name: str, arguments: str, style: str, data: st.DataObject
) -> list[dict[str, Any]]:
    address: dict[str, Any] = {"index": 0 if style == "index 0" else at, "id": f"c{at}"}
    if style == "by id":
        del address["index"]
    elif style == "no id":
        del address["id"]
    later = address if style in ("by id", "index 0", "repeated name") else {"index": at}
    cut = data.draw(st.integers(0, len(name) - 1)) if style != "no id" else 0
    names = [part for part in (name[:cut], name[cut:]) if part]
    pieces = [piece(name=part, **address) for part in names]
    repeated = {"name": name} if style == "repeated name" else {}
    while arguments:
        size = data.draw(st.integers(1, len(arguments)))
        pieces.append(piece(arguments=arguments[:size], **later, **repeated))
        arguments = arguments[size:]
    return [merged(pieces[: len(names)], names), *pieces[len(names) :]] if cut else pieces


def merged(heads: list[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    """One chunk with all pieces of a name: several pieces of one call may come together."""
    both = [each["choices"][0]["delta"]["tool_calls"][0] for each in heads]
    assert len(both) == len(names)
    return chunk(tool_calls=both)


def _numbered(count: int) -> list[dict[str, Any]]:
    return [
        {"function": {"name": "look", "arguments": json.dumps({"at": number})}}
        for number in range(count)
    ]


def test_the_arguments_of_a_call_are_compared_by_what_was_kept_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Arguments are long, and messages that repeat them may be many."""
    parsed: list[int] = []

    def noting(*texts: str) -> object:
        parsed.append(sum(map(len, texts)))
        return _parse_json_or_none(*texts)

    monkeypatch.setattr(calls, "_parse_json_or_none", noting)
    long = json.dumps({"place": "x" * 100_000})
    other = {"function": {"name": "clock", "arguments": '{"zone": 1}'}}
    message = {"choices": [{"message": {"tool_calls": [other]}, "finish_reason": None}]}
    said = read(reader(tools=TOOLS), piece(name="look", arguments=long), *[message] * 500,
                chunk("tool_calls"))  # fmt: skip
    assert made(said)[0] == [("look", long), ("clock", '{"zone": 1}')]
    assert sum(parsed) < 2 * len(long)


def test_repetitions_of_many_calls_are_bounded() -> None:
    first = {"choices": [{"message": {"tool_calls": _numbered(1_000)}, "finish_reason": None}]}
    assert len(made(read(reader(tools=TOOLS), *[first] * 20, chunk("tool_calls")))[0]) == 1_000
    empty: dict[str, object] = {
        "choices": [{"message": {"tool_calls": [{}]}, "finish_reason": None}]
    }
    with pytest.raises(UpstreamFailed, match="too often"):
        read(reader(tools=TOOLS), first, *[empty] * 1_000)
