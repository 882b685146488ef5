"""An engine of vLLM as one process of the service lends it to another."""

from __future__ import annotations

from dataclasses import dataclass, field

from causerie.engines.base import ModelFacts


@dataclass(frozen=True, slots=True)
class VllmPlace:
    """The address and key of a server.

    ``host`` and ``socket`` are as in :class:`Reach`; ``model`` is what it calls its model.
    """

    address: str
    model: str
    host: str | None = None
    socket: str | None = None
    key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class LentEngine:
    """All that another process needs to read and write the tokens of a model."""

    folder: str
    weights: bool
    """Whether the folder is read with its weights."""
    files: str
    """Digest of its files; those of another digest are of another model."""
    facts: ModelFacts
    members: int
    """Servers that one generation may try."""


@dataclass(frozen=True, slots=True)
class LentServer:
    """The server of one generation. ``context`` bounds its tokens, prompt and output together."""

    member: str
    place: VllmPlace
    context: int
