"""Questions of worker processes about accounts, and the answers of the process that has them.

A notice has no answer.

They are encoded as MessagePack. ``request`` is a number that a worker gives to one request; it
uses none twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import msgspec
from msgspec import Struct

from causerie.access.credential import Credential
from causerie.access.quota import LimitStatuses, Tokens
from causerie.errors import Failed
from causerie.metering.ledger import UsageRecord


class RpcMessage(Struct, frozen=True, array_like=True, tag=True):
    """One question or answer."""


class Authenticate(RpcMessage, frozen=True):
    """Find the caller with this key at this door. Answered by :class:`Authenticated`."""

    door: str
    credential: Credential | None


class TakeLimits(RpcMessage, frozen=True):
    """Take the limits of the key, its person and its project; answered by :class:`LimitsTaken`."""

    request: int
    door: str
    credential: Credential
    model: str
    tokens: Tokens


class EndLimits(RpcMessage, frozen=True):
    """Give the limits back; ``undone``: as if nothing had been taken."""

    request: int
    input: int = 0
    output: int = 0
    undone: bool = False


class BeginRequest(RpcMessage, frozen=True):
    """Hold the estimate against budgets, and write down that the request runs.

    ``usage`` is its record if it never ends. Answered by :class:`BudgetsHeld`.
    """

    request: int
    door: str
    credential: Credential | None
    """``None`` for a caller without a key of accounts, who has no budget."""
    tokens: Tokens
    usage: UsageRecord


class Checkpoint(RpcMessage, frozen=True):
    """The request has used so much by now; this is its record if it never ends."""

    request: int
    usage: UsageRecord


class ReleaseBudgets(RpcMessage, frozen=True):
    """Give back what the request holds, since it asks for another model."""

    request: int


class RecordUsage(RpcMessage, frozen=True):
    """The request has ended, and this is its record without its cost; answered by
    :class:`Recorded`."""

    request: int
    """0 if it was refused before it could begin."""
    usage: UsageRecord


class Authenticated(RpcMessage, frozen=True):
    """The caller. ``limited``: limits of the key, its person or its project apply."""

    key: str
    name: str
    project: str
    user: str
    models: Sequence[str] | None
    recorded: bool
    limited: bool


class LimitsTaken(RpcMessage, frozen=True):
    """The limits were taken; this is how the strictest stand."""

    limit_statuses: LimitStatuses


class BudgetsHeld(RpcMessage, frozen=True):
    """The request may go to a target."""


class Recorded(RpcMessage, frozen=True):
    """The record is safe."""

    cost: Decimal


Question = Authenticate | TakeLimits | BeginRequest | RecordUsage
Notice = Checkpoint | EndLimits | ReleaseBudgets
Answer = Authenticated | LimitsTaken | BudgetsHeld | Recorded | Failed

_notices: msgspec.msgpack.Decoder[Notice] = msgspec.msgpack.Decoder(Notice)
_questions: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
_encoder = msgspec.msgpack.Encoder()


def encoded(message: Question | Notice | Answer) -> bytes:
    return _encoder.encode(message)


def question(data: bytes) -> Question:
    return _questions.decode(data)


def notice(data: bytes) -> Notice:
    return _notices.decode(data)


def answer(data: bytes) -> Answer:
    return _answers.decode(data)
