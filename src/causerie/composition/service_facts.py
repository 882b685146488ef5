"""Facts of a running service for the user's other commands: its address, and its models."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from causerie.engines.base import EngineStatus
from causerie.settings import ModelSettings


class RunningModel(Struct, frozen=True):
    """One model of a running service, as it is now."""

    id: str
    ref: str | None
    engine: str
    state: str
    """One of ``EngineState``."""
    context: int | None
    """Tokens of prompt and output of one request in force; ``None`` until it is loaded."""
    slots: int
    busy: int
    memory_bytes: int | None
    """The most that it may take, an estimate; ``None`` where nothing is loaded."""
    pid: int | None = None
    """Of its process, where the service has started it."""
    cache_tokens: int | None = None
    """Tokens that all requests together may have, where they share a cache that bounds them."""
    members: tuple[RunningMember, ...] = ()
    """Of a pool."""


class RunningMember(Struct, frozen=True):
    """One server of a pool, as it is now."""

    address: str
    state: str
    slots: int
    busy: int
    memory_bytes: int | None = None
    """The most that it may take, where it is a process that the service has started."""
    pid: int | None = None
    """Of that process."""


class ServiceFacts(Struct, frozen=True):
    """Identity of a running service, and its models."""

    pid: int
    file: str | None
    """The configuration file, if there is one."""
    address: str
    models: tuple[RunningModel, ...] = ()


def running_models(
    models: Sequence[ModelSettings], statuses: Sequence[EngineStatus]
) -> tuple[RunningModel, ...]:
    known = {model.id: model for model in models}
    return tuple(
        RunningModel(
            id=status.model,
            ref=known[status.model].ref,
            engine=known[status.model].engine,
            state=status.state.value,
            context=status.context,
            slots=status.slots,
            busy=status.busy,
            memory_bytes=status.memory_bytes,
            pid=status.pid,
            cache_tokens=status.cache_tokens,
            members=tuple(_running_member(each) for each in status.members),
        )
        for status in statuses
        if status.model in known
    )


def _running_member(status: EngineStatus) -> RunningMember:
    memory = None if status.pid is None else status.memory_bytes
    return RunningMember(
        status.model, status.state.value, status.slots, status.busy, memory, status.pid
    )
