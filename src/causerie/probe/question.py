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
    """A question to a provider about a model."""

    id: str
    rule: str
    """Its place in the interface or the contract."""
    words: str
    script: Callable[[Subject], Script]
    decides: tuple[str, ...] = ()
    """Parameters that it shows to be supported."""
    asks: int = 1
    """Limit on its requests."""
    tokens: int = 0
    """Limit on the tokens of each request, prompt and output."""
    loud: bool = False
    """It asks with thinking on, so it is only for models that think."""
    alone: bool = False
    """It is asked even if no completion has come."""


def step(script: Script, reply: ProbeReply | None) -> ProbeRequest | Learned | ProbeVerdict:
    """Advance the script: return its next request, or its result."""
    try:
        return next(script) if reply is None else script.send(reply)
    except StopIteration as stop:
        ended: Learned | ProbeVerdict = stop.value
        return ended
    except Settled as settled:
        return settled.verdict
