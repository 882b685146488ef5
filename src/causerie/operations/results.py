"""Results of probes in a folder: of each model at each provider the newest, and the one in force.

A file that cannot be read counts as none: everything in it can be measured again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from causerie.operations.result import Result


class Kept(Struct, frozen=True):
    """Kept results of one model."""

    newest: Result | None = None
    used: Result | None = None


_NOTHING = Kept()
_decoder = msgspec.json.Decoder(Kept)


class Results:
    """``folder`` tells where they are kept, or ``None``: they end with the service then."""

    def __init__(self, folder: Callable[[], Path | None]) -> None:
        self._folder = folder
        self._known: dict[tuple[str, str], Kept] = {}

    def of(self, provider: str, model: str) -> Kept:
        """Return the kept results of a model."""
        known = self._known.get((provider, model))
        if known is None:
            known = self._known[provider, model] = self._read(provider, model)
        return known

    def keep(self, result: Result) -> None:
        """Keep a new one, at least until the service ends; raises :class:`OSError`."""
        before = self.of(result.provider, result.model)
        self._write(result, Kept(newest=result, used=before.used))

    def use(self, result: Result) -> None:
        """It is in force now; raises :class:`OSError`."""
        used = structs.replace(result, used=True)
        self._write(result, Kept(newest=used, used=used))

    def _read(self, provider: str, model: str) -> Kept:
        file = self._file(provider, model)
        if file is None:
            return _NOTHING
        try:
            return _decoder.decode(file.read_bytes())
        except (OSError, msgspec.DecodeError):
            return _NOTHING

    def _write(self, result: Result, kept: Kept) -> None:
        self._known[result.provider, result.model] = kept
        file = self._file(result.provider, result.model)
        if file is None:
            return
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=file.parent, suffix=".new")
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(msgspec.json.encode(kept))
            Path(name).replace(file)
        finally:
            with contextlib.suppress(FileNotFoundError):
                Path(name).unlink()

    def _file(self, provider: str, model: str) -> Path | None:
        folder = self._folder()
        if folder is None:
            return None
        digest = hashlib.sha256(f"{provider}/{model}".encode()).hexdigest()[:32]
        return folder / f"{digest}.json"
