"""A question: a pure script over requests and replies that ends in a verdict."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from causerie.probe.ask import ProbeRequest
from causerie.probe.reply import ProbeReply
from causerie.probe.subject import Subject
from causerie.probe.verdict import ProbeVerdict, Settled

Script = Generator[ProbeRequest, ProbeReply, "ProbeVerdict | Learned"]


@dataclass(frozen=True, slots=True)
class Learned:
    """A verdict, and what later questions should know."""

    verdict: ProbeVerdict
    subject: Subject


@dataclass(frozen=True, slots=True)
class ProbeQuestion:
    """``rule`` is its place in the interface or the contract.

    ``decides`` are the parameters that it shows to be supported. It sends at
    most ``asks`` requests that cost at most ``tokens`` tokens each, prompt and
    output. ``loud`` asks with thinking on, so it is only for models that think;
    ``alone`` is asked even where no completion has come.
    """

    id: str
    rule: str
    words: str
    script: Callable[[Subject], Script]
    decides: tuple[str, ...] = ()
    asks: int = 1
    tokens: int = 0
    loud: bool = False
    alone: bool = False


def step(script: Script, reply: ProbeReply | None) -> ProbeRequest | Learned | ProbeVerdict:
    """Advance the script: return its next request, or its result."""
    try:
        return next(script) if reply is None else script.send(reply)
    except StopIteration as stop:
        ended: Learned | ProbeVerdict = stop.value
        return ended
    except Settled as settled:
        return settled.verdict
