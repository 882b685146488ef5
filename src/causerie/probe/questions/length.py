"""End of an answer (contract 1): output limits, stops, the number of choices."""

from __future__ import annotations

from collections.abc import Callable

from causerie.errors import counted
from causerie.probe.question import ProbeQuestion, Script
from causerie.probe.reading import ProbeAnswer, answered, refusal
from causerie.probe.reply import dig
from causerie.probe.subject import Subject
from causerie.probe.verdict import no, partly, unclear, yes

COUNT = "Count from 1 to 60, separated by commas."
BRIEF = "Answer with one word: yes"
BRIEF_MOST = 48
_LEAST = 40
_TOKENS = (65, 300, 1000)  # ids that vocabularies of every sort have


def _limit(name: str) -> Callable[[Subject], Script]:
    def script(subject: Subject) -> Script:
        fields: dict[str, object] = {subject.limit: None, name: 8}
        answer = answered((yield subject.ask(COUNT, 8, **fields)))
        told = "" if answer.completion is None else f" after {counted(answer.completion, 'token')}"
        if answer.finish == "length":
            if answer.completion is not None and answer.completion > 8:
                return partly(f"asked for 8 tokens, {answer.completion} were counted")
            return yes()
        if answer.completion is not None and answer.completion < 8:
            return unclear(f"it ended by itself{told}")
        return no(f"asked for at most 8 tokens; it ended with {answer.finish!r}{told}")

    return script


def _both(subject: Subject) -> Script:
    fields: dict[str, object] = {subject.limit: None, "max_tokens": 8, "max_completion_tokens": 9}
    reply = yield subject.ask(COUNT, 8, **fields)
    if refusal(reply) is not None:
        return yes(refusal(reply) or "")
    answered(reply)
    return no("two limits that differ are taken, and one is dropped in silence")


def _least(subject: Subject) -> Script:
    return (yield from _longer(subject, {"min_tokens": _LEAST}, _LEAST))


def _endless(subject: Subject) -> Script:
    return (yield from _longer(subject, {"ignore_eos": True}, BRIEF_MOST))


def _longer(subject: Subject, fields: dict[str, object], least: int) -> Script:
    """Judge whether a brief answer grows to at least ``least`` tokens with these fields."""
    brief = answered((yield subject.ask(BRIEF, BRIEF_MOST).once()))
    if brief.completion is None:
        return unclear("no usage tells how long answers are")
    if brief.completion >= least:
        return unclear("the answer is long by itself")
    grown = answered((yield subject.ask(BRIEF, BRIEF_MOST, **fields)))
    words = f"{counted(brief.completion, 'token')} without, {grown.completion} with it"
    return yes(words) if (grown.completion or 0) >= least else no(f"accepted, no effect: {words}")


def _stop(subject: Subject) -> Script:
    whole = answered((yield subject.ask(COUNT, 40).once())).text
    middle = len(whole) // 2
    mark = whole[middle : middle + 3]
    if len(mark) < 3 or not mark.strip():
        return unclear("the answer is too short to be cut")
    cut = answered((yield subject.ask(COUNT, 40, stop=[mark, "\u2603\u2603"])))
    if mark not in cut.text and cut.finish == "stop" and len(cut.text) < len(whole):
        return yes(f"cut before {mark!r}")
    if cut.text.endswith(mark) and len(cut.text) < len(whole):
        return partly("the text ends with the stop string")
    if mark not in cut.text:
        return partly(f"cut, with finish reason {cut.finish!r}")
    return no(f"accepted, no effect: {mark!r} is in the answer")


def _stop_ids(subject: Subject) -> Script:
    for token in _TOKENS:
        forced = {subject.limit: 6, "logit_bias": {str(token): 100}}
        reply = yield subject.ask(COUNT, 6, **forced).once()
        if refusal(reply) is not None or answered(reply).finish != "length":
            continue
        stopped = answered((yield subject.ask(COUNT, 6, stop_token_ids=[token], **forced)))
        if stopped.finish == "stop":
            return yes(f"token {token} ended the answer")
        return no(f"accepted, no effect: token {token} did not end the answer")
    return unclear("no token could be forced, so none could stop the answer")


def _choices(subject: Subject) -> Script:
    reply = yield subject.ask("Name an animal.", 8, n=2, temperature=1)
    first = answered(reply)
    found = dig(first.document, "choices")
    listed = found if isinstance(found, list) else []
    if len(listed) != 2:
        return no(f"two choices were asked for, {len(listed)} came")
    second: ProbeAnswer = answered(reply, 1)
    if [dig(one, "index") for one in listed] != [0, 1]:
        return partly("the choices are not numbered 0 and 1")
    return yes() if second.text else partly("the second choice is empty")


QUESTIONS = (
    ProbeQuestion(
        "max_tokens",
        "contract 1",
        "Does `max_tokens` cut, with finish reason length?",
        _limit("max_tokens"),
        decides=("max_tokens",),
        tokens=60,
    ),
    ProbeQuestion(
        "max_completion_tokens",
        "contract 1",
        "Does `max_completion_tokens` cut?",
        _limit("max_completion_tokens"),
        decides=("max_completion_tokens",),
        tokens=60,
    ),
    ProbeQuestion(
        "limits.both", "contract 1", "Are both limits, different, refused?", _both, tokens=60
    ),
    ProbeQuestion(
        "min_tokens",
        "contract 1",
        "Does `min_tokens` keep an answer going?",
        _least,
        decides=("min_tokens",),
        asks=2,
        tokens=90,
    ),
    ProbeQuestion(
        "ignore_eos",
        "contract 1",
        "Does `ignore_eos` keep an answer going?",
        _endless,
        decides=("ignore_eos",),
        asks=2,
        tokens=90,
    ),
    ProbeQuestion(
        "stop",
        "contract 1",
        "Do stop strings cut, and stay out of the text?",
        _stop,
        decides=("stop",),
        asks=2,
        tokens=90,
    ),
    ProbeQuestion(
        "stop_token_ids",
        "contract 1",
        "Does a stop token end the answer?",
        _stop_ids,
        decides=("stop_token_ids",),
        asks=6,
        tokens=60,
    ),
    ProbeQuestion("n", "contract 1", "Do `n` choices come?", _choices, decides=("n",), tokens=70),
)
