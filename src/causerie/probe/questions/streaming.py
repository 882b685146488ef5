"""Questions on streams: form, chunks and usage, and what happens if the client leaves."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from causerie.probe.question import (
    ProbeReply,
    ProbeRequest,
    ProbeStream,
    Script,
    Steps,
    Subject,
    answered,
    dig,
    joined,
    no,
    partly,
    question,
    refusal,
    streamed,
    unclear,
    weighed,
    yes,
)
from causerie.probe.questions.messages import HELLO, MOST


def _plain_stream(subject: Subject) -> ProbeRequest:
    return subject.ask(HELLO, MOST, stream=True).once()


def _usage_stream(subject: Subject) -> ProbeRequest:
    options = {"include_usage": True}
    return subject.ask(HELLO, MOST, stream=True, stream_options=options).once()


@question("stream", "S, 6", tokens=80)
def _form(subject: Subject) -> Script:
    """Is a stream `data:` lines that end with [DONE]?"""
    stream = streamed((yield _plain_stream(subject)))
    return weighed(list(stream.faults), of=4)


@question("stream.chunks", "2.6, S", decides=("stream",), tokens=80)
def _chunks(subject: Subject) -> Script:
    """One id, the role first, one finish reason?"""
    stream = streamed((yield _plain_stream(subject)))
    missing = []
    if len({str(dig(chunk, "id")) for chunk in stream.chunks}) != 1 or not dig(
        stream.chunks[0], "id"
    ):
        missing.append("not the same `id` on every chunk")
    if any(dig(chunk, "object") != "chat.completion.chunk" for chunk in stream.chunks):
        missing.append("`object` is not chat.completion.chunk")
    first = next(iter(stream.deltas()), {})
    if first.get("role") != "assistant":
        missing.append("the first delta has no role")
    reasons = stream.finishes()
    if len(reasons) != 1:
        missing.append(f"{len(reasons)} finish reasons instead of one")
    if not joined(stream).text:
        missing.append("no text")
    return weighed(missing, of=5)


@question("stream.usage", "2.6, S", decides=("stream_options",), tokens=80)
def _usage(subject: Subject) -> Script:
    """Does usage come last, with empty choices, when asked for?"""
    stream = streamed((yield _usage_stream(subject)))
    if stream.usage is None:
        return no("no chunk carries usage")
    missing = _usage_faults(stream)
    total, parts = dig(stream.usage, "total_tokens"), joined(stream)
    if total != (parts.prompt or 0) + (parts.completion or 0):
        missing.append("its numbers do not add up")
    return weighed(missing, of=len(missing) + 1)


def _usage_faults(stream: ProbeStream) -> list[str]:
    missing = []
    last = stream.chunks[-1]
    if dig(last, "usage") is None:
        missing.append("usage is not in the last chunk")
    elif dig(last, "choices") != []:
        missing.append("the chunk with usage has choices")
    if sum(dig(chunk, "usage") is not None for chunk in stream.chunks) > 1:
        missing.append("several chunks carry usage")
    return missing


@question("stream.unasked", "2.6", tokens=80)
def _unasked(subject: Subject) -> Script:
    """And no usage when not asked for?"""
    stream = streamed((yield _plain_stream(subject)))
    if stream.usage is not None:
        return no("a chunk carries usage although nobody asked for it")
    return yes()


@question("stream.same", "contract 2", asks=3, tokens=80)
def _same(subject: Subject) -> Script:
    """Does a stream say what the plain answer says?"""
    plain = answered((yield subject.ask(HELLO, MOST).once()))
    stream = joined(streamed((yield _usage_stream(subject))))
    if stream.text != plain.text:
        again = answered((yield subject.ask(HELLO, MOST)))
        if again.text != plain.text:
            return unclear("two plain answers differ from each other already")
        return no(f"plain {plain.text!r:.60}, streamed {stream.text!r:.60}")
    missing = []
    if stream.finish != plain.finish:
        missing.append(f"finish reasons differ: {plain.finish} and {stream.finish}")
    if stream.completion is not None and (stream.prompt, stream.completion) != (
        plain.prompt,
        plain.completion,
    ):
        missing.append("the usage differs")
    return partly("; ".join(missing)) if missing else yes()


QUESTIONS = (_form, _chunks, _usage, _unasked, _same)


_LONG = "Count from 1 to 500 in words, one number a line."
_MOST = 600
_LOOKS = 12
_PAUSE = 0.15
_LONGEST_PAUSE = 1.0
_TRIES = 2  # without a page: a machine that stalls once is not taken for a server at work
_GAUGES = re.compile(
    rb"^(?:vllm:num_requests_running|sglang:num_running_reqs|llamacpp:requests_processing)"
    rb"(?:\{[^}]*\})? ([0-9]{1,9})(?![0-9])",
    re.MULTILINE,
)


def _slots(reply: ProbeReply) -> int | None:
    found = reply.document()
    if not isinstance(found, list) or not found:
        return None
    return sum(dig(one, "is_processing") is True for one in found)


def _gauges(reply: ProbeReply) -> int | None:
    found = _GAUGES.findall(reply.body)
    return sum(map(int, found)) if found else None


def _engines(reply: ProbeReply) -> int | None:
    engines = dig(reply.document(), "engines")
    if not isinstance(engines, list):
        return None
    return sum(busy for one in engines if isinstance(busy := dig(one, "busy"), int))


Page = tuple[str, Callable[[ProbeReply], int | None]]
_PAGES: tuple[Page, ...] = (("/health", _engines), ("/slots", _slots), ("/metrics", _gauges))


def _page(path: str) -> ProbeRequest:
    return ProbeRequest("GET", path, at_root=True)


def _found() -> Steps[tuple[Page, int] | None]:
    for page in _PAGES:
        busy = page[1]((yield _page(page[0])))
        if busy is not None:
            return page, busy
    return None


@question("cancel.stream", "contract 2", asks=3 + _LOOKS, tokens=60)
def _left_stream(subject: Subject) -> Script:
    """Does the work end when a stream is left?"""
    ask = replace(subject.ask(_LONG, _MOST, stream=True), leave_at_data=True)
    return (yield from _left(subject, ask))


@question("cancel.plain", "contract 2", asks=3 + _LOOKS, tokens=60)
def _left_plain(subject: Subject) -> Script:
    """Does the work end when a plain request is left?"""
    ask = replace(subject.ask(_LONG, _MOST), leave_after=0.5)
    return (yield from _left(subject, ask))


def _left(subject: Subject, ask: ProbeRequest) -> Script:
    found = yield from _found()
    if found is None:
        return (yield from _by_time(subject, ask))
    page, before = found
    reply = yield ask
    if reply.ended != "left":
        return unclear(refusal(reply) or "it had ended before we could leave")
    waited = 0.0
    slow = min(max(_PAUSE, reply.seconds / 4), _LONGEST_PAUSE)  # a slow server stops slowly
    for look in range(_LOOKS):
        pause = slow if look else 0.0
        waited += pause
        busy = page[1]((yield replace(_page(page[0]), wait_seconds=pause)))
        if busy is not None and busy <= before:
            return yes(f"{page[0]} shows it free {waited:.2g} s later")
    return no(f"{page[0]} shows it busy {waited:.2g} s later")


def _by_time(subject: Subject, ask: ProbeRequest) -> Script:
    alone = yield subject.ask("Say ok.", 4)
    for _ in range(_TRIES):
        left = yield ask
        if left.ended != "left":
            return unclear(refusal(left) or "it had ended before we could leave")
        after = yield subject.ask("Say ok.", 4)
        if after.seconds <= 3 * alone.seconds + 1.0:
            return unclear(
                "no page of the server tells what is running; the next request was not slower"
            )
    return no(f"the next request took {after.seconds:.1f} s instead of {alone.seconds:.1f} s")


LEAVING_QUESTIONS = (_left_stream, _left_plain)
