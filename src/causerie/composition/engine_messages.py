"""Questions of worker processes about engines, and the answers of the process that keeps them.

A notice has no answer. They are encoded as MessagePack. ``number`` is what a worker gives to each
question; it uses none twice, and its notices say with it what they are about.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from causerie.engines.base import EngineFailed, LoadFailed
from causerie.engines.model_slot import Edition
from causerie.engines.vllm.lent import LentEngine, LentServer
from causerie.errors import Failed


class EngineMessage(Struct, frozen=True, array_like=True, tag=True):
    """One question, notice or answer."""


class Enter(EngineMessage, frozen=True):
    """Take places at a model, once there are some, and load it; answered by :class:`Entered`.

    :class:`LeaveModel` gives the places back. ``has`` is what the worker knows of the engine.
    """

    number: int
    model: str
    places: int
    has: Edition


class Choose(EngineMessage, frozen=True):
    """Choose a server for a prompt, of packed tokens in a scope; answered by :class:`Chosen`.

    It is none of those that were ``tried``. :class:`EndGeneration` frees it.
    """

    number: int
    engine: int
    prompt: bytes
    scope: str
    tried: Sequence[str]


class Follow(EngineMessage, frozen=True):
    """Tell of the engine once it is loaded, and another than ``has``.

    Answered by :class:`EngineTold`.
    """

    number: int
    model: str
    has: Edition


class LeaveModel(EngineMessage, frozen=True):
    """The request has ended, or waits no more."""

    number: int


class Answered(EngineMessage, frozen=True):
    """The first token of a generation has come."""

    number: int


class Beats(EngineMessage, frozen=True):
    """Something has come of these generations in the last second."""

    numbers: Sequence[int]


class EndGeneration(EngineMessage, frozen=True):
    """As :meth:`causerie.engines.pool.turn.Turn.end`; the tokens are packed."""

    number: int
    made: bytes | None = None
    failure: str = ""


class EngineTold(EngineMessage, frozen=True):
    """The engine, as it is now."""

    edition: Edition
    lent: LentEngine


class Entered(EngineMessage, frozen=True):
    """The places are taken, after so many seconds, and the model is loaded.

    ``told`` is ``None`` where the worker knows it as it is now.
    """

    waited: float
    told: EngineTold | None


class Chosen(EngineMessage, frozen=True):
    """The server of the generation."""

    server: LentServer


class EngineAway(EngineMessage, frozen=True):
    """The question ends in a failure of the engine: the fields of :class:`EngineFailed`.

    ``unloadable`` makes it a :class:`LoadFailed`.
    """

    message: str
    loading: bool
    retry_after: float
    unloadable: bool

    @classmethod
    def of(cls, failure: EngineFailed) -> EngineAway:
        """Return the failure as a message."""
        unloadable = isinstance(failure, LoadFailed)
        return cls(str(failure), failure.loading, failure.retry_after, unloadable)

    def failure(self) -> EngineFailed:
        """Return the failure, as the other process raised it."""
        kind = LoadFailed if self.unloadable else EngineFailed
        return kind(self.message, loading=self.loading, retry_after=self.retry_after)


Question = Enter | Choose | Follow
Notice = LeaveModel | Answered | Beats | EndGeneration
Answer = Entered | Chosen | EngineTold | EngineAway | Failed

_encoder = msgspec.msgpack.Encoder()
_questions: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)
_notices: msgspec.msgpack.Decoder[Notice] = msgspec.msgpack.Decoder(Notice)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def encoded(message: Question | Notice | Answer) -> bytes:
    """Return a message as bytes."""
    return _encoder.encode(message)


def question(data: bytes) -> Question:
    """Return the question that these bytes are."""
    return _questions.decode(data)


def notice(data: bytes) -> Notice:
    """Return the notice that these bytes are."""
    return _notices.decode(data)


def answer(data: bytes) -> Answer:
    """Return the answer that these bytes are."""
    return _answers.decode(data)
