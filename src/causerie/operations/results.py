"""Results of probes: of each model at each provider the newest, and the one in force.

What cannot be read counts as none: everything in it can be measured again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec
import structlog
from msgspec import Struct, structs

from causerie.operations.result import Result

_log = structlog.get_logger(__name__)


class Kept(Struct, frozen=True):
    """Kept results of one model."""

    newest: Result | None = None
    used: Result | None = None


NOTHING = Kept()
_decoder = msgspec.json.Decoder(Kept)


class ResultStore(Protocol):
    """Keeps results as JSON. Everything raises ``StoreUnavailable``."""

    async def of(self, provider: str) -> Mapping[str, str]:
        """Return what is kept of a provider, by model."""

    async def put(self, provider: str, model: str, kept: str) -> None:
        """Keep this of a model in place of what was kept."""


class Results:
    """The results that all processes of a service have in common."""

    def __init__(self, store: ResultStore) -> None:
        self._store = store

    async def of(self, provider: str) -> Mapping[str, Kept]:
        """Return the kept results of a provider, by model."""
        kept = await self._store.of(provider)
        return {model: _read(text) for model, text in kept.items()}

    async def keep(self, result: Result) -> None:
        before = (await self.of(result.provider)).get(result.model, NOTHING)
        await self._put(Kept(newest=result, used=before.used), result)

    async def use(self, result: Result) -> None:
        used = structs.replace(result, used=True)
        await self._put(Kept(newest=used, used=used), result)

    async def _put(self, kept: Kept, of: Result) -> None:
        await self._store.put(of.provider, of.model, msgspec.json.encode(kept).decode())


def _read(text: str) -> Kept:
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError as failure:
        _log.warning("result of a probe cannot be read", error=str(failure))
        return NOTHING
