"""Messages between the parent and its worker processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from causerie.protocol.call_class import CallClass
from causerie.routing.reported_stats import Measurements
from causerie.workers.layout import Places


class Carried(Struct, frozen=True, tag=True):
    """A connection comes with this; ``requests`` were read from it, encoded by the edge."""

    requests: bytes = b""


class Prepare(Struct, frozen=True, tag=True):
    """To a worker: make what may fail of this configuration, and report :class:`PrepareOutcome`.

    ``configuration`` is read by who composes the service.
    """

    number: int
    configuration: bytes
    places: Places


class PrepareOutcome(Struct, frozen=True, tag=True):
    """From a worker: a configuration is ready to be served by, or the problems with it."""

    number: int
    problems: Sequence[str] = ()


class Commit(Struct, frozen=True, tag=True):
    """To a worker: serve by the configuration of this number from now on."""

    number: int


class TargetObserved(Struct, frozen=True, omit_defaults=True):
    """Of one target. Moments are in seconds of the clock that the processes share."""

    measured: Measurements = Measurements()
    failed: Mapping[str, int] = {}
    """Requests that failed there, by code."""
    calls: Mapping[CallClass, int] = {}
    """Delivered calls that were checked, by class."""


class Observed(Struct, frozen=True, tag=True, omit_defaults=True):
    """From a worker: what it has counted and measured since the last time.

    ``counts`` are of metrics, read by who composes the service; ``targets`` are by name.
    """

    counts: bytes
    targets: Mapping[str, TargetObserved] = {}


Subject = Literal["accounts", "engines"]


class WorkerQuestion(Struct, frozen=True, tag=True):
    """From a worker: who answers for the ``subject`` reads ``body``.

    Answered by :class:`ParentAnswer`. ``number`` is 0 where nobody waits for an answer.
    """

    number: int
    subject: Subject
    body: bytes


class ParentAnswer(Struct, frozen=True, tag=True):
    """To a worker: the answer to the question of this number."""

    number: int
    body: bytes


class Beat(Struct, frozen=True, tag=True):
    """To a worker and back: whoever does not return it does not go on."""


class Leave(Struct, frozen=True, tag=True):
    """To a worker: a stop is near; end each connection with its next answer."""


class Stop(Struct, frozen=True, tag=True):
    """To a worker: let what runs finish, and end; ``hurry`` ends what runs at once."""

    hurry: bool = False


Message = (
    Carried
    | Prepare
    | PrepareOutcome
    | Commit
    | Observed
    | WorkerQuestion
    | ParentAnswer
    | Beat
    | Leave
    | Stop
)
