"""One generation at one server: chosen, read, ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from causerie.engines.base import Output, TextRequest
from causerie.engines.supervised import SupervisedEngine


class Turn(Protocol):
    """A server that has been chosen for a generation, and counts it until its ``end``."""

    @property
    def member(self) -> str:
        """Return the name of the server in its pool."""
        ...

    def generate(self, request: TextRequest) -> AbstractAsyncContextManager[AsyncIterator[Output]]:
        """Return the generation there."""
        ...

    def answered(self) -> None:
        """The first token has come, so the prompt has been read."""
        ...

    def end(self, made: Sequence[int] | None = None, failure: str = "") -> None:
        """The server does no more for it.

        ``made`` are the tokens of a generation that is complete; ``failure`` is what the server
        failed by. With neither, the generation was left, or refused.
        """
        ...


Choose = Callable[[Sequence[int], str, Collection[str]], Awaitable[Turn]]
"""Chooses for a prompt in a scope, none of the members that were tried; raises
:class:`EngineFailed`.
"""


class SoleTurn:
    """A generation by the only server of a model, of which nothing is learnt."""

    member = ""

    def __init__(self, engine: SupervisedEngine[Any]) -> None:
        self.engine = engine

    def generate(self, request: TextRequest) -> AbstractAsyncContextManager[AsyncIterator[Output]]:
        """As in :class:`Turn`."""
        return self.engine.generate(request)

    def answered(self) -> None:
        """As in :class:`Turn`."""

    def end(self, made: Sequence[int] | None = None, failure: str = "") -> None:
        """As in :class:`Turn`."""
