"""Going on with a reply that has begun (contract 1): what failover needs of an endpoint."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace

from causerie.probe.ask import Ask
from causerie.probe.question import Learned, Question, Script
from causerie.probe.reading import Answer, answered, refusal
from causerie.probe.reply import Reply
from causerie.probe.subject import Messages, Subject, user
from causerie.probe.verdict import Verdict, no, partly, unclear, yes

_ASKED = user("What is the capital of France? Answer in one sentence.")
_BEGUN = "The capital of France is Par"
_NEXT = "is"
_FIELDS: Mapping[str, object] = {"continue_final_message": True, "add_generation_prompt": False}


def _talk(**fields: object) -> Messages:
    return [_ASKED, {"role": "assistant", "content": _BEGUN} | fields]


def _plain(subject: Subject) -> Ask:
    return subject.ask(_talk(), 8).once()


def _goes_on(answer: Answer) -> bool:
    return answer.text.startswith(_NEXT)


def _by_fields(subject: Subject) -> Generator[Ask, Reply, Verdict]:
    """By its text, or by a prompt that has no end of message and no beginning of one."""
    reply = yield subject.ask(_talk(), 8, **_FIELDS).once()
    answer = answered(reply)
    plain = yield _plain(subject)
    if _goes_on(answer):
        return yes(f"went on with {answer.text!r:.40}")
    if refusal(plain) is None and plain.status == 200:
        other = answered(plain)
        if answer.prompt is not None and other.prompt is not None and answer.prompt < other.prompt:
            return yes(f"{other.prompt - answer.prompt} tokens between messages are left out")
    return no(f"accepted, began anew: {answer.text!r:.60}")


def _field(subject: Subject) -> Script:
    return (yield from _by_fields(subject))


def _continues(subject: Subject) -> Script:
    """Any way will do: the field, an assistant message at the end, or `prefix`."""
    verdict = yield from _field_quietly(subject)
    if verdict.good:
        return Learned(yes("by `continue_final_message`"), replace(subject, continues=True))
    plain = yield _plain(subject)
    if refusal(plain) is None and _goes_on(answered(plain)):
        how = "whenever an assistant message is the last one"
        return Learned(partly(how), replace(subject, continues=True))
    prefix = yield subject.ask(_talk(prefix=True), 8)
    if refusal(prefix) is None and _goes_on(answered(prefix)):
        return Learned(partly("by `prefix`"), replace(subject, continues=True))
    return Learned(no("it begins anew"), replace(subject, continues=False))


def _field_quietly(subject: Subject) -> Generator[Ask, Reply, Verdict]:
    reply = yield subject.ask(_talk(), 8, **_FIELDS).once()
    if refusal(reply) is not None:
        return no(refusal(reply) or "")
    return (yield from _by_fields(subject))


def _bare_prompt(subject: Subject) -> Script:
    """Without the beginning of a new message the prompt is shorter."""
    bare = answered((yield subject.ask("Say ok.", 4, add_generation_prompt=False)))
    full = answered((yield subject.ask("Say ok.", 4)))
    if bare.prompt is None or full.prompt is None:
        return unclear("no usage tells the length of the prompt")
    if bare.prompt < full.prompt:
        return yes(f"{full.prompt - bare.prompt} tokens fewer")
    return no("accepted, no effect: the prompt is as long with it as without")


QUESTIONS = (
    Question(
        "continue_final_message",
        "contract 1",
        "Does `continue_final_message` go on where the last message ends?",
        _field,
        decides=("continue_final_message",),
        asks=2,
        tokens=70,
    ),
    Question(
        "continues",
        "contract 2",
        "Can a reply that has begun be continued, one way or another?",
        _continues,
        asks=4,
        tokens=70,
    ),
    Question(
        "add_generation_prompt",
        "contract 1",
        "Does `add_generation_prompt: false` shorten the prompt?",
        _bare_prompt,
        decides=("add_generation_prompt",),
        asks=2,
        tokens=50,
    ),
)
