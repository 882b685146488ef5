"""A question of the probe: its request, its replies, what is known so far, and its verdict."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from inspect import getdoc
from typing import Any, Literal, TypeVar

import msgspec

from causerie.protocol import bounded_json

Ended = Literal["whole", "left", "late", "broken", "large"]


def dig(value: object, *path: str | int) -> object:
    """Return the value at the path in decoded JSON; ``None`` if there is none."""
    for step in path:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


@dataclass(frozen=True, slots=True)
class ProbeReply:
    """One reply."""

    status: int = 0
    """0 if none came."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By lower-case name."""
    body: bytes = b""
    ended: Ended = "whole"
    """Whole; left by us; ``late`` (over the time limit), ``broken`` (the connection) or ``large``
    (over the size limit).
    """
    trouble: str = ""
    """Text of the failure."""
    seconds: float = 0.0
    """Time that it took."""

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def document(self) -> object:
        try:
            return bounded_json.decode(self.body, Any, bounded_json.REPLY)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None


Credential = Literal["ours", "none", "wrong"]


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """Request to a provider."""

    method: Literal["GET", "POST"]
    path: str
    """Follows the base URL, or the root of its host if ``at_root`` is set."""
    body: bytes = b""
    credential: Credential = "ours"
    at_root: bool = False
    leave_at_data: bool = False
    """Close the connection at the first data of the reply."""
    leave_after: float | None = None
    """Close the connection after so many seconds."""
    wait_seconds: float = 0.0
    reuse: bool = False
    """Equal requests are sent once, and that reply answers all of them."""

    def once(self) -> ProbeRequest:
        """Return the request marked: one reply serves all equal ones."""
        return replace(self, reuse=True)


def chat(fields: Mapping[str, object]) -> ProbeRequest:
    return ProbeRequest("POST", "/chat/completions", msgspec.json.encode(fields))


class Grade(StrEnum):
    """How far a capability is there. ``UNCLEAR``: nothing was seen that would decide it."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class ProbeVerdict:
    """A grade, and for people what was seen, or what is missing."""

    grade: Grade
    how: str = ""

    @property
    def good(self) -> bool:
        return self.grade in (Grade.YES, Grade.PARTLY)


def yes(how: str = "") -> ProbeVerdict:
    return ProbeVerdict(Grade.YES, how)


def partly(how: str) -> ProbeVerdict:
    return ProbeVerdict(Grade.PARTLY, how)


def no(how: str) -> ProbeVerdict:
    return ProbeVerdict(Grade.NO, how)


def unclear(how: str) -> ProbeVerdict:
    return ProbeVerdict(Grade.UNCLEAR, how)


def weighed(missing: list[str], *, of: int, how: str = "") -> ProbeVerdict:
    """Return yes if nothing is missing, no if all ``of`` things are, otherwise partly."""
    if not missing:
        return yes(how)
    words = "; ".join(missing)
    return no(words) if len(missing) >= of else partly(words)


class Settled(Exception):
    """Raised inside a question whose verdict is clear already."""

    def __init__(self, verdict: ProbeVerdict) -> None:
        super().__init__(verdict.how)
        self.verdict = verdict


Thinking = Literal["switch", "always", "never"]
Messages = Sequence[Mapping[str, object]]


def user(text: str) -> dict[str, object]:
    return {"role": "user", "content": text}


@dataclass(frozen=True, slots=True)
class Subject:
    """One model at one provider."""

    base_url: str
    model: str
    keyed: bool = False
    entry: object = None
    """Its entry in the list of models."""
    limit: str = "max_tokens"
    """Name of the output limit that it takes."""
    steady: Mapping[str, object] = field(default_factory=lambda: {"temperature": 0})
    """Fields that make it repeat itself."""
    quiet: Mapping[str, object] = field(default_factory=dict)
    """Fields that keep it from thinking."""
    loud: Mapping[str, object] | None = None
    """Fields that make it think; ``None``: nothing does."""
    room: int = 0
    """Tokens that a reply needs in addition to its text, if it cannot be kept from thinking."""
    thinking: Thinking | None = None
    context_length: int | None = None
    continues: bool | None = None

    def ask(self, said: str | Messages, most: int, /, **fields: object) -> ProbeRequest:
        """Return a completion of at most ``most`` tokens of text, as steady and quiet as can be.

        A field given as ``None`` is left out.
        """
        messages = [user(said)] if isinstance(said, str) else said
        usual = {**self.steady, **self.quiet, self.limit: most + self.room}
        body: dict[str, object] = {"model": self.model, "messages": messages, **fields}
        body |= {name: value for name, value in usual.items() if name not in fields}
        return chat({name: value for name, value in body.items() if value is not None})

    def loudly(self, said: str | Messages, most: int, /, **fields: object) -> ProbeRequest:
        """Return the same with thinking on; ``most`` counts the thinking too."""
        on = {**dict.fromkeys(self.quiet), **(self.loud or {})}
        return self.ask(said, most, **{**on, **fields})


T = TypeVar("T")
Steps = Generator[ProbeRequest, ProbeReply, T]
"""A part of a script, which comes to some result."""
Script = Steps["ProbeVerdict | Learned"]
MakeQuestion = Callable[[Callable[["Subject"], Script]], "ProbeQuestion"]


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


def question(id: str, rule: str, words: str = "", **facts: Any) -> MakeQuestion:
    """Make a question of a script, whose docstring is its words unless they are given."""
    return lambda script: ProbeQuestion(id, rule, words or getdoc(script) or "", script, **facts)


def of_parameter(name: str, words: str = "", **facts: Any) -> MakeQuestion:
    """Make the question whether a parameter of the contract's first section is supported."""
    return question(name, "contract 1", words, decides=(name,), **facts)


def step(script: Script, reply: ProbeReply | None) -> ProbeRequest | Learned | ProbeVerdict:
    """Advance the script: return its next request, or its result."""
    try:
        return next(script) if reply is None else script.send(reply)
    except StopIteration as stop:
        ended: Learned | ProbeVerdict = stop.value
        return ended
    except Settled as settled:
        return settled.verdict
