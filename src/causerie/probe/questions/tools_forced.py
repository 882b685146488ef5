"""Tools that must be called (interface 4.2, contract 1): required, named, among a few."""

from __future__ import annotations

from collections.abc import Callable, Generator

from causerie.probe.ask import ProbeRequest
from causerie.probe.question import ProbeQuestion, Script
from causerie.probe.questions.toolbox import TOOLS, call_faults
from causerie.probe.questions.tools import WANTED
from causerie.probe.reading import ProbeAnswer, answered
from causerie.probe.reply import ProbeReply
from causerie.probe.subject import Subject
from causerie.probe.verdict import ProbeVerdict, no, partly, weighed, yes

_SMALL_TALK = "Say hello."
_NAMED = {"type": "function", "function": {"name": "now"}}
_ALLOWED = {
    "type": "allowed_tools",
    "allowed_tools": {
        "mode": "required",
        "tools": [{"type": "function", "function": {"name": "now"}}],
    },
}


def _judged(answer: ProbeAnswer, name: str | None) -> ProbeVerdict:
    """Judge whether a call has come; of ``name``, if one was given."""
    if not answer.calls:
        return no(f"accepted, no call came: {answer.text!r:.80}")
    names = {str(call.name) for call in answer.calls}
    if name is not None and names != {name}:
        return no(f"asked for {name}, called {', '.join(sorted(names))}")
    faults = call_faults(answer)
    return weighed(faults, of=len(faults) + 1)


def _forced(said: str, choice: object, name: str | None) -> Callable[[Subject], Script]:
    def script(subject: Subject) -> Generator[ProbeRequest, ProbeReply, ProbeVerdict]:
        reply = yield subject.ask(said, 128, tools=TOOLS, tool_choice=choice)
        return _judged(answered(reply), name)

    return script


def _forced_loud(said: str, choice: object, name: str | None) -> Callable[[Subject], Script]:
    def script(subject: Subject) -> Generator[ProbeRequest, ProbeReply, ProbeVerdict]:
        reply = yield subject.loudly(said, 320, tools=TOOLS, tool_choice=choice)
        answer = answered(reply)
        verdict = _judged(answer, name)
        if verdict == yes() and not answer.reasoning:
            return partly("called, but without thinking")
        return verdict

    return script


def _question(
    id: str, words: str, script: Callable[[Subject], Script], decides: tuple[str, ...] = ()
) -> ProbeQuestion:
    loud = id.endswith(".thinking")
    most = 600 if loud else 400
    return ProbeQuestion(id, "4.2, contract 1", words, script, decides, tokens=most, loud=loud)


QUESTIONS = (
    _question(
        "tool_choice.required",
        "Does `tool_choice: required` make it call?",
        _forced(_SMALL_TALK, "required", None),
        ("tool_choice",),
    ),
    _question(
        "tool_choice.required.thinking",
        "And with thinking on?",
        _forced_loud(_SMALL_TALK, "required", None),
    ),
    _question(
        "tool_choice.named", "Does a named function get called?", _forced(WANTED, _NAMED, "now")
    ),
    _question(
        "tool_choice.named.thinking", "And with thinking on?", _forced_loud(WANTED, _NAMED, "now")
    ),
    _question(
        "tool_choice.allowed",
        "Does `allowed_tools` leave only those?",
        _forced(WANTED, _ALLOWED, "now"),
    ),
)
