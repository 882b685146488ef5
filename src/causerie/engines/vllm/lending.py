"""Engines of vLLM for other processes of the service, which read and write tokens themselves.

This process keeps the servers, and chooses one for each generation of another process.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from causerie.engines.base import EngineFailed, ModelFacts
from causerie.engines.model_slot import ManagedEngine
from causerie.engines.pool.generation import MOST_MEMBERS
from causerie.engines.pool.member_turn import MemberTurn
from causerie.engines.pool.pool import EnginePool
from causerie.engines.pool.turn import SoleTurn
from causerie.engines.vllm.engine import VllmEngine
from causerie.engines.vllm.lent import LentEngine, LentServer


def lent_engine(engine: ManagedEngine, facts: ModelFacts) -> LentEngine:
    """Return what is lent of a loaded engine; raise :class:`EngineFailed`."""
    pool = isinstance(engine, EnginePool)
    folder = _vllm(engine.any() if isinstance(engine, EnginePool) else engine).served_folder
    return LentEngine(
        folder=str(folder.facts.path),
        weights=folder.weights,
        files=folder.files.digest,
        facts=facts,
        members=MOST_MEMBERS if pool else 1,
    )


class Loan:
    """One generation of another process, from the choice of its server until its ``end``."""

    def __init__(
        self, engine: ManagedEngine, prompt: Sequence[int], scope: str, tried: Collection[str]
    ) -> None:
        """Choose the server; raise :class:`EngineFailed` if there is none."""
        self._turn = _chosen(engine, prompt, scope, tried)
        try:
            self._engine = _vllm(self._turn.engine)
            self.server = LentServer(self._turn.member, self._engine.place, self._engine.context)
        except EngineFailed:
            self._turn.end()
            raise
        self._engine.enter()

    def answered(self) -> None:
        """The first token has come."""
        self._engine.beat()
        self._turn.answered()

    def beat(self) -> None:
        """Something has come from the server."""
        self._engine.beat()

    def end(self, made: Sequence[int] | None = None, failure: str = "") -> None:
        """End the turn."""
        self._engine.leave(done=made is not None)
        self._turn.end(made, failure)


def _chosen(
    engine: ManagedEngine, prompt: Sequence[int], scope: str, tried: Collection[str]
) -> MemberTurn | SoleTurn:
    if isinstance(engine, EnginePool):
        return engine.enter(prompt, scope, tried)
    return SoleTurn(_vllm(engine))


def _vllm(engine: object) -> VllmEngine:
    if not isinstance(engine, VllmEngine):
        raise EngineFailed("only engines of vLLM can be used by another process")
    return engine
