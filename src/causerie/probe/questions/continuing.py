"""Going on with a reply that has started (contract 1): what failover needs of a provider."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace

from causerie.probe.ask import ProbeRequest
from causerie.probe.question import Learned, ProbeQuestion, Script
from causerie.probe.reading import ProbeAnswer, answered, joined, refusal, streamed
from causerie.probe.reply import ProbeReply
from causerie.probe.subject import Messages, Subject, user
from causerie.probe.verdict import no, partly, unclear, yes

_ASKED = user("What is the capital of France? Answer in one sentence.")
_STARTED = "The capital of France is Par"
_NEXT = "is"
_FEW = 5  # tokens; saying all of it anew takes more
_FIELDS: Mapping[str, object] = {"continue_final_message": True, "add_generation_prompt": False}


def _talk(**fields: object) -> Messages:
    return [_ASKED, {"role": "assistant", "content": _STARTED} | fields]


def _plain(subject: Subject) -> ProbeRequest:
    return subject.ask(_talk(), 8).once()


def _goes_on(answer: ProbeAnswer) -> bool:
    """Return whether the text goes on; it may repeat the sent text if that costs no tokens."""
    if answer.text.startswith(_NEXT):
        return True
    repeated = answer.text.startswith(_STARTED + _NEXT)
    return repeated and answer.completion is not None and answer.completion <= _FEW


def _field(subject: Subject) -> Script:
    """Seen in its text, or in a prompt that has no end of a message and no beginning of one."""
    answer = answered((yield subject.ask(_talk(), 8, **_FIELDS).once()))
    if _goes_on(answer):
        if answer.text.startswith(_STARTED):
            return partly("it goes on, and repeats what was sent")
        return yes(f"went on with {answer.text!r:.40}")
    fewer = yield from _fewer(subject, answer)
    if fewer:
        return yes(f"{fewer} tokens between messages are left out")
    return no(f"accepted, began anew: {answer.text!r:.60}")


def _fewer(subject: Subject, answer: ProbeAnswer) -> Generator[ProbeRequest, ProbeReply, int]:
    """By how many tokens the prompt is shorter than with a message that is closed."""
    reply = yield _plain(subject)
    if refusal(reply) is not None:
        return 0
    other = answered(reply)
    return max(0, (other.prompt or 0) - (answer.prompt or 0)) if answer.prompt else 0


def _continues(subject: Subject) -> Script:
    """Any way will do, in a stream: an assistant message at the end, the field, or `prefix`."""
    ways = (
        ("whenever an assistant message is the last one", subject.ask(_talk(), 8, stream=True)),
        ("by `continue_final_message`", subject.ask(_talk(), 8, **_FIELDS, stream=True)),
        ("by `prefix`", subject.ask(_talk(prefix=True), 8, stream=True)),
    )
    for how, ask in ways:
        reply = yield ask
        if refusal(reply) is None and joined(streamed(reply)).text.startswith(_NEXT):
            return Learned(yes(how), replace(subject, continues=True))
    marked = yield subject.ask(_talk(), 8, **_FIELDS).once()
    if refusal(marked) is None and (yield from _fewer(subject, answered(marked))):
        return Learned(yes("by `continue_final_message`"), replace(subject, continues=True))
    return Learned(no("it begins anew"), replace(subject, continues=False))


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
    ProbeQuestion(
        "continue_final_message",
        "contract 1",
        "Does `continue_final_message` go on where the last message ends?",
        _field,
        decides=("continue_final_message",),
        asks=2,
        tokens=70,
    ),
    ProbeQuestion(
        "continues",
        "contract 2",
        "Can a reply that has started be continued, one way or another?",
        _continues,
        asks=5,
        tokens=70,
    ),
    ProbeQuestion(
        "add_generation_prompt",
        "contract 1",
        "Does `add_generation_prompt: false` shorten the prompt?",
        _bare_prompt,
        decides=("add_generation_prompt",),
        asks=2,
        tokens=50,
    ),
)
