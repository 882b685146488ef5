"""Streams: their form, their chunks, their usage (interface 2.6, S, 6; contract 2)."""

from __future__ import annotations

from causerie.probe.ask import ProbeRequest
from causerie.probe.question import ProbeQuestion, Script
from causerie.probe.questions.completion import HELLO, MOST
from causerie.probe.reading import ProbeStream, answered, joined, streamed
from causerie.probe.reply import dig
from causerie.probe.subject import Subject
from causerie.probe.verdict import no, partly, unclear, weighed, yes


def _plain_stream(subject: Subject) -> ProbeRequest:
    return subject.ask(HELLO, MOST, stream=True).once()


def _usage_stream(subject: Subject) -> ProbeRequest:
    options = {"include_usage": True}
    return subject.ask(HELLO, MOST, stream=True, stream_options=options).once()


def _form(subject: Subject) -> Script:
    stream = streamed((yield _plain_stream(subject)))
    return weighed(list(stream.faults), of=4)


def _chunks(subject: Subject) -> Script:
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


def _usage(subject: Subject) -> Script:
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


def _unasked(subject: Subject) -> Script:
    stream = streamed((yield _plain_stream(subject)))
    if stream.usage is not None:
        return no("a chunk carries usage although nobody asked for it")
    return yes()


def _same(subject: Subject) -> Script:
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


QUESTIONS = (
    ProbeQuestion(
        "stream", "S, 6", "Is a stream `data:` lines that end with [DONE]?", _form, tokens=80
    ),
    ProbeQuestion(
        "stream.chunks",
        "2.6, S",
        "One id, the role first, one finish reason?",
        _chunks,
        decides=("stream",),
        tokens=80,
    ),
    ProbeQuestion(
        "stream.usage",
        "2.6, S",
        "Does usage come last, with empty choices, when asked for?",
        _usage,
        decides=("stream_options",),
        tokens=80,
    ),
    ProbeQuestion("stream.unasked", "2.6", "And no usage when not asked for?", _unasked, tokens=80),
    ProbeQuestion(
        "stream.same",
        "contract 2",
        "Does a stream say what the plain answer says?",
        _same,
        asks=3,
        tokens=80,
    ),
)
