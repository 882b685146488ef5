"""Context length (interface 8, contract 3), and the handling of longer conversations."""

from __future__ import annotations

import re
from dataclasses import replace

from causerie.probe.ask import ProbeRequest
from causerie.probe.question import Learned, ProbeQuestion, Script
from causerie.probe.questions.listing import LIST, entry_of, listed_length
from causerie.probe.reading import answered, message_of, refusal
from causerie.probe.reply import ProbeReply, dig
from causerie.probe.subject import Subject
from causerie.probe.verdict import no, partly, unclear, yes

LONGEST_ASKED = 32_768  # tokens; a longer prompt would cost too much if it were not refused
TOO_LONG = "context.exceeded"  # the one question that may send such a prompt
_HUGE = 100_000_000
_TOLD = re.compile(
    r"(?:maximum context length is|context length (?:is|of)|context window (?:is|of)|"
    r"context (?:size|holds)|n_ctx)\D{0,20}([0-9][0-9,_]{2,})",
    re.IGNORECASE,
)


def longest_prompt(length: int) -> int:
    """Words, and about as many tokens, of the prompt that is too long for a context."""
    return length + length // 8


def told_length(reply: ProbeReply) -> int | None:
    """Return the context length that an error tells, in its metadata or in words."""
    told = dig(reply.document(), "error", "metadata", "context_length")
    if not isinstance(told, int):
        told = dig(reply.document(), "error", "n_ctx")
    if isinstance(told, int):
        return told
    found = _TOLD.search(message_of(reply))
    return int(re.sub("[,_]", "", found[1])) if found else None


def _length(subject: Subject) -> Script:
    if subject.context_length is not None:
        return yes(f"{subject.context_length} tokens, by the list of models")
    again = entry_of((yield LIST), subject.model)
    if (length := listed_length(again)) is not None:  # known once the model has been loaded
        return _learned(subject, length, "by the list of models", whole=True)
    reply = yield ProbeRequest("GET", "/props", at_root=True)
    slot = dig(reply.document(), "default_generation_settings", "n_ctx")
    if isinstance(slot, int) and slot > 0:
        return _learned(subject, slot, "by GET /props")
    limit = subject.limit
    reply = yield subject.ask("Say ok.", 4, **{limit: _HUGE})
    length = told_length(reply) if refusal(reply) is not None else None
    if length is not None:
        return _learned(subject, length, "by the refusal of a huge output limit")
    return unclear("nothing tells it")


def _learned(subject: Subject, length: int, how: str, *, whole: bool = False) -> Learned:
    words = f"{length} tokens, {how}"
    known = replace(subject, context_length=length)
    return Learned(yes(words) if whole else partly(words), known)


def _too_long(subject: Subject) -> Script:
    length = subject.context_length
    if length is None:
        return unclear("not asked: the context length is not known")
    if length > LONGEST_ASKED:
        return unclear(f"not asked: a prompt of more than {length} tokens might cost as much")
    reply = yield subject.ask("hi " * longest_prompt(length), 1)
    if reply.status == 200:
        answer = answered(reply)
        return no(f"taken, with a prompt of {answer.prompt} tokens: it was cut in silence")
    if refusal(reply) is None:
        return (
            no(f"status {reply.status}: {message_of(reply)}")
            if reply.status
            else unclear(reply.trouble)
        )
    if dig(reply.document(), "error", "code") == "context_length_exceeded":
        return yes(message_of(reply))
    return partly(f"refused under another code: {message_of(reply)}")


QUESTIONS = (
    ProbeQuestion(
        "context_length", "8, contract 3", "Is the context length told?", _length, asks=3, tokens=60
    ),
    ProbeQuestion(
        TOO_LONG, "contract 3", "Is a prompt that is too long refused, and never cut?", _too_long
    ),
)
