"""What a provider says, judged by its content: repetitions, ends, numbers, and how bytes come."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import zlib
from collections.abc import Sequence
from typing import Any

import brotli
import pytest
from casekit import each_of, examples
from hypothesis import given, settings
from hypothesis import strategies as st
from providerkit import BufferedBody, body_stream, chunk, joined, read, reader, request

from causerie.errors import UpstreamFailed
from causerie.http.client import HttpClient
from causerie.http.decoding import zstd
from causerie.protocol.events import (
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    Usage,
    joined_events,
)
from causerie.providers import answer
from causerie.providers.answer import Repetition
from causerie.providers.dialects import GENERIC
from causerie.providers.provider import Provider
from causerie.providers.target import ProviderTarget
from causerie.providers.wire import WORDS

THOUGHT, ANSWER = "One, two.", "Three."
SAID = [ReasoningDelta(THOUGHT), TextDelta(ANSWER), Finished("stop")]


def said(*chunks: Any, **fields: Any) -> list[Event]:
    return joined(read(reader(**fields), *chunks)[:-1])


def whole(finish: str | None = "stop", **message: Any) -> dict[str, Any]:
    """A chunk with a whole message."""
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}


def parts(text: str, cuts: Sequence[int]) -> list[str]:
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(edges) if b > a]


CUTS = st.lists(st.integers(0, 99), max_size=4)
WORDED = st.text(alphabet='ab <>/\\n"', min_size=1, max_size=12).filter(str.strip)


@given(WORDED, WORDED, CUTS, st.data())
@settings(deadline=None, max_examples=examples(150))
def test_what_is_said_again_is_said_once(
    thought: str, answer: str, cuts: list[int], data: st.DataObject
) -> None:
    """In a whole message behind the pieces, as reasoning behind the text, between tags."""
    answer = answer.lstrip(" <\n") or "x"
    sent = [chunk(reasoning_content=part) for part in parts(thought, cuts)]
    if data.draw(st.booleans()):
        tagged = f"<think>\n{thought}\n</think>\n\n"
        sent += [chunk(content=part) for part in parts(tagged + answer, cuts)]
    else:
        sent += [chunk(content=part) for part in parts(answer, cuts)]
    for again in data.draw(st.lists(st.sampled_from(["message", "reasoning", "both"]), max_size=2)):
        if again == "message":
            sent.append(whole(content=answer, reasoning_content=thought))
        elif again == "both":
            sent.append(whole(content=f"<think>{thought}</think>{answer}"))
        else:
            sent += [chunk(reasoning=part) for part in parts(thought, cuts)]
    assert said(*sent, chunk("stop")) == [
        ReasoningDelta(thought),
        TextDelta(answer),
        Finished("stop"),
    ]


def test_reasoning_that_comes_again_with_the_text_is_said_once() -> None:
    again = chunk("stop", reasoning_content=THOUGHT, content=ANSWER)
    assert said(chunk(reasoning_content=THOUGHT), again) == SAID


def test_a_whole_text_beside_its_message_repeats_the_pieces() -> None:
    pieces = [chunk(content=part) for part in ("Two ", "words")]
    last = whole(content="Two words")
    last["choices"][0]["delta"] = {"content": "Two words"}
    assert said(*pieces, last) == [TextDelta("Two words"), Finished("stop")]


def test_the_text_of_a_plain_completion_is_content() -> None:
    choice = {"index": 0, "text": "fine", "finish_reason": "stop"}
    assert said({"choices": [choice]}) == [TextDelta("fine"), Finished("stop")]


def test_white_space_at_the_end_of_repeated_reasoning_is_said_once() -> None:
    pieces = [chunk(reasoning_content=part) for part in ("<<", " ")]
    text = [chunk(content=part) for part in ("<t", "hink>\n<< \n</think>\n\nx")]
    events = said(*pieces, *text, *pieces, chunk("stop"))
    assert events == [ReasoningDelta("<< "), TextDelta("x"), Finished("stop")]


def test_new_reasoning_behind_text_is_kept() -> None:
    events = said(
        chunk(reasoning="Hm."), chunk(content="a"), chunk(reasoning="Hm, then"), chunk(content="b")
    )
    assert events == [
        ReasoningDelta("Hm."),
        TextDelta("a"),
        ReasoningDelta("Hm, then"),
        TextDelta("b"),
        Finished("stop"),
    ]


def test_a_message_that_says_more_than_its_pieces_says_the_rest() -> None:
    assert said(chunk(content="Thr"), whole(content=ANSWER)) == SAID[1:]
    pieces = [whole(None, content=part) for part in ("Th", "r", "ee.")]
    assert said(*pieces, chunk("stop")) == SAID[1:]
    grown = [whole(None, content=ANSWER[:size]) for size in (2, 4, 6)]
    assert said(*grown, chunk("stop")) == SAID[1:]


def test_no_word_has_two_meanings() -> None:
    words = [word for listed in WORDS.values() for word in listed]
    assert len(words) == len(set(words))
    assert all(word == word.lower() and "-" not in word for word in words)


@each_of(
    ("word", "meaning"),
    [(word, meaning) for meaning, words in WORDS.items() for word in words],
)
def test_every_listed_word(word: str, meaning: str) -> None:
    for written in (word, word.upper(), word.replace("_", "-")):
        if meaning in ("failed", "unusable"):
            for sent in ([chunk(written)], [chunk(content="Hi"), chunk(written)]):
                with pytest.raises(UpstreamFailed):
                    said(*sent)
            with pytest.raises(UpstreamFailed):
                reader().whole(json.dumps(whole(written, content=None)).encode())
        else:
            reason = "stop" if meaning == "tool_calls" else meaning
            assert said(chunk(content="Hi"), chunk(written))[-1] == Finished(reason)


@each_of("word", ["eureka", "tool_calls", None, "", 7, {"type": "x"}])
def test_nothing_said_and_no_good_reason_is_a_failure(word: Any) -> None:
    silent = {"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": word}]}
    with pytest.raises(UpstreamFailed):
        said(silent)
    with pytest.raises(UpstreamFailed):
        reader().whole(json.dumps(whole(word, content="")).encode())
    assert said(chunk(content="Hi"), silent)[-1] == Finished("stop")
    assert said(chunk(reasoning="Hm"), silent)[-1] == Finished("stop")


def test_an_empty_reply_that_stopped_is_one() -> None:
    assert said(chunk("stop", content="")) == [Finished("stop")]
    assert said(chunk("length", content="")) == [Finished("length")]


@each_of("first", ["length", "content_filter", "MAX_TOKENS", "SAFETY"])
@each_of("later", ["stop", "tool_calls", "eureka", "error", "length"])
def test_the_first_cut_stands(first: str, later: str) -> None:
    reason = said(chunk(content="Hi"), chunk(first))[-1]
    assert said(chunk(content="Hi"), chunk(first), chunk(later))[-1] == reason


def usage(*told: Any, **fields: Any) -> Usage:
    [*_, last] = read(reader(**fields), chunk(content="fine"), chunk("stop"), *told)
    assert isinstance(last, Usage)
    return last


def tokens(prompt: Any, completion: Any, **more: Any) -> dict[str, Any]:
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": completion, **more}}


@pytest.mark.parametrize("last", [tokens(0, 0), tokens(None, None), {"usage": {}}, {"usage": None}])
def test_a_number_that_was_told_is_not_taken_back(last: dict[str, Any]) -> None:
    first = tokens(50, 3, prompt_tokens_details={"cached_tokens": 20})
    assert usage(first, last) == Usage(50, 3, cached=20)
    assert usage(tokens(50, 0), tokens(0, 3)) == Usage(50, 3)
    assert usage(tokens(50, 1), tokens(50, 3)) == Usage(50, 3)


@pytest.mark.parametrize(
    "told",
    [
        {"x_groq": {"id": "x", **tokens(50, 3)}},
        {"usage": {"input_tokens": 50, "output_tokens": 3}},
        {"choices": [{"index": 0, "delta": {}, **tokens(50, 3)}]},
        {"choices": [], **tokens("50", "3")},
    ],
)
def test_usage_by_other_names(told: dict[str, Any]) -> None:
    assert usage(told) == Usage(50, 3)


def test_more_cached_than_prompt_is_counted_apart() -> None:
    told = tokens(3, 9, total_tokens=12, prompt_tokens_details={"cached_tokens": 50_000})
    assert usage(told) == Usage(50_003, 9, cached=50_000)
    body = {**whole(content="fine"), **told}
    assert reader().whole(json.dumps(body).encode())[-1] == Usage(50_003, 9, cached=50_000)


@given(
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.none() | st.integers(1, 4096),
    st.booleans(),
)
@settings(deadline=None, max_examples=examples(200))
def test_no_usage_is_charged_that_cannot_be(
    prompt: int, completion: int, reasoning: int, limit: int | None, plain: bool
) -> None:
    """By the limits of the request, what came, and what the request may hold."""
    told = tokens(prompt, completion, completion_tokens_details={"reasoning_tokens": reasoning})
    one = reader(**({} if limit is None else {"max_tokens": limit}))
    if plain:
        [*_, last] = one.whole(json.dumps({**whole(content="fine"), **told}).encode())
    else:
        [*_, last] = read(one, chunk(content="fine"), chunk("stop"), told)
    assert isinstance(last, Usage)
    assert last.completion - last.reasoning <= (limit or 1 << 20) + 16
    assert last.completion <= (1 << 20) + 16
    assert last.prompt <= 140_000
    if not reasoning:
        assert last.completion <= len("fine") + 128
    assert last.impossible <= last.estimated
    if last.impossible:
        assert max(prompt, completion) > 128


def test_hidden_reasoning_is_believed_within_the_limits() -> None:
    told = tokens(50, 9000, completion_tokens_details={"reasoning_tokens": 8990})
    assert usage(told) == Usage(50, 9000, reasoning=8990)
    assert usage(tokens(50, 9000)).estimated
    assert usage(tokens(50, 9000), reasoning={"effort": "high"}).completion == 9000


# How bytes come.


def stream(pieces: Sequence[bytes], most: int = 1 << 20) -> list[Event]:
    class Arriving(BufferedBody):
        async def piece(self, late: float = float("inf")) -> bytes:
            del late
            return waiting.pop(0) if waiting else b""

    async def events() -> list[Event]:
        body = body_stream(Arriving(b""), most)
        return [event async for batch in body for event in batch]

    waiting = [piece for piece in pieces if piece]
    return asyncio.run(events())


PIECES = [json.dumps(one).encode() for one in (chunk(content="fi"), chunk("stop", content="ne"))]
NOISE = [
    b"", b": wait", b"event: ping", b'data: {"time": 12}\n', b"event: ping\ndata: no JSON\n",
    b"data: null\n", b"id: 3", b"retry: 5", b"data:\n", b'data: {"choices": []}\n', b"data: [ ]\n",
]  # fmt: skip


@given(
    st.lists(st.sampled_from(NOISE), max_size=3),
    st.lists(st.sampled_from(NOISE), max_size=3),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.sampled_from([b"data: ", b"data:", b"event: message\ndata: ", b""]),
    st.booleans(),
    st.booleans(),
    st.none() | st.lists(st.integers(0, 999), max_size=6),
)
@settings(deadline=None, max_examples=examples(150))
def test_whatever_surrounds_the_chunks_they_say_the_same(
    before: list[bytes],
    between: list[bytes],
    newline: bytes,
    label: bytes,
    marked: bool,
    done: bool,
    cuts: list[int] | None,
) -> None:
    lines = [each + b"\n" for each in before]
    lines += [label + PIECES[0] + b"\n\n", *(each + b"\n" for each in between)]
    lines += [b"\n", label + PIECES[1] + b"\n\n", b"data: [DONE]\n\n" * done]
    body = (b"\xef\xbb\xbf" * marked + b"".join(lines)).replace(b"\n", newline)
    places = range(len(body)) if cuts is None else sorted(cut % len(body) for cut in cuts)
    edges = [0, *places, len(body)]
    pieces = [body[a:b] for a, b in itertools.pairwise(edges)]
    assert joined(stream(pieces))[:-1] == [TextDelta("fine"), Finished("stop")]


@pytest.mark.parametrize("name", ["", "event: ping\n", "event: message\n"])
def test_an_event_named_error_is_one(name: str) -> None:
    events = b"data: " + PIECES[0] + b"\n\nevent: error\ndata: "
    for told in (b'{"message": "broke"}', b"broke", b'{"error": {"message": "broke"}}'):
        with pytest.raises(UpstreamFailed, match="broke its reply off"):
            stream([events + told + b"\n\n" + name.encode() + b"data: [DONE]\n\n"])


@pytest.mark.parametrize("size", [1, 200, 1 << 16])
def test_a_reply_is_bounded_in_all(size: int) -> None:
    piece = b"data: " + json.dumps(chunk(content="x" * size)).encode() + b"\n\n"
    most = 4 * len(piece)
    with pytest.raises(UpstreamFailed, match="max_reply_bytes"):
        stream([piece] * 5, most)
    end = b"data: " + json.dumps(chunk("stop")).encode() + b"\n\ndata: [DONE]\n\n"
    assert Finished("stop") in stream([piece, end], most + len(end))


WHOLE = json.dumps(whole(content="fine")).encode()
STREAM = b"".join(b"data: " + piece + b"\n\n" for piece in (*PIECES, b"[DONE]"))
BODIES = [
    WHOLE, STREAM, b": wait\n\n" + STREAM, b"\n\n  " + WHOLE, WHOLE + b"\n\ndata: [DONE]\n\n",
    b"event: message\n" + STREAM, b"\xef\xbb\xbf" + WHOLE, b"\n".join(PIECES) + b"\n",
]  # fmt: skip
CODINGS = {
    "identity": bytes, "gzip": gzip.compress, "deflate": zlib.compress,
    "br": brotli.compress, "zstd": zstd.compress,
}  # fmt: skip


async def answered(reply: bytes, *, cut: bool, streamed: bool) -> list[Event]:
    """Return what is read of a raw response, sent whole or byte by byte."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for at in range(0, len(reply), 1 if cut else len(reply)):
            writer.write(reply[at : at + 1] if cut else reply)
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    provider = Provider("p", HttpClient(f"http://127.0.0.1:{port}/v1"), GENERIC)
    try:
        target = ProviderTarget(provider, "m")
        async with target.generate(request(stream=streamed)) as reply_read:
            return joined([event async for batch in reply_read.events for event in batch])
    finally:
        await provider.close()
        server.close()


@each_of("label", ["application/json", "text/event-stream", "text/plain"])
@each_of("coding", CODINGS)
async def test_the_content_decides_and_not_the_label(label: str, coding: str) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {label}\r\nContent-Encoding: {coding}\r\n\r\n"
    for body in BODIES:
        sent = head.encode() + CODINGS[coding](body)
        for cut in (False, True):
            for streamed in (False, True):
                events = await answered(sent, cut=cut, streamed=streamed)
                assert events[:-1] == [TextDelta("fine"), Finished("stop")], (body, cut, streamed)


async def test_what_cannot_be_decoded_is_told() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: compress\r\n\r\n"
    with pytest.raises(UpstreamFailed, match="compressed"):
        await answered(head + b"\x1f\x9d\x90\x00", cut=False, streamed=False)


def test_joined_events_say_the_same() -> None:
    events = read(reader(), chunk(reasoning="a"), chunk(reasoning="b"), chunk(content="c"),
                  chunk(content="d"), chunk("stop"))  # fmt: skip
    assert joined_events(events) == joined(events)


@pytest.mark.parametrize(
    "later",
    [
        {"message": {"content": "<think>x"}},
        {"message": {"content": "x", "reasoning": "x"}},
        {"delta": {"content": "y", "reasoning": "x"}},
    ],
    ids=["tags", "message", "behind text"],
)
def test_reasoning_is_compared_with_later_text_within_bounds(
    later: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each comparison reads all reasoning, and pieces of text are many."""
    compared: list[int] = []

    class Noting(Repetition):
        def __init__(self, text: str) -> None:
            compared.append(len(text))
            super().__init__(text)

    monkeypatch.setattr(answer, "Repetition", Noting)
    events = [{"choices": [{"index": 0, **later}]}] * 300
    read(reader(), chunk(reasoning="r" * 500_000), *events, chunk("stop", content="z"))
    assert sum(compared) < 17_000_000
