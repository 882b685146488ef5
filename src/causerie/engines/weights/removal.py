"""Deletion of weights from the cache: the files, their checksums, and the records of them."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path

from causerie.engines.weights.cache import (
    Cache,
    CachedWeights,
    FolderCache,
    OpenVinoCache,
    OutlineCache,
    sidecar,
)
from causerie.engines.weights.errors import WeightsError
from causerie.engines.weights.reference import Reference

_FOLDERS: dict[str, type[Cache]] = {
    "folders": FolderCache,
    "outlines": OutlineCache,
    "openvino": OpenVinoCache,
}


async def remove(cache: Path, weights: CachedWeights) -> None:
    """Delete ``weights`` from the folder ``cache``, while no fetch works on them.

    Records of the same files under other references go too. Raises :class:`WeightsError`.
    """
    if weights.record is None:
        raise WeightsError(f"{weights.path} is not in the cache {cache}; it is a file of your own.")
    reference = Reference.parse(weights.ref)
    first = weights.path.relative_to(cache).parts[0]
    store = _FOLDERS.get(first, Cache)(cache)
    async with store.lock(reference):
        try:
            await asyncio.to_thread(_delete, cache, weights.record)
        except OSError as error:
            reason = error.strerror or str(error)
            raise WeightsError(f"{weights.ref} cannot be deleted: {reason}.") from error
        with suppress(OSError):  # others may keep files there
            store.home(reference).rmdir()


def _delete(cache: Path, record: Path) -> None:
    names = _files(record)
    for other in record.parent.glob("*.json"):
        if names & _files(other):
            other.unlink(missing_ok=True)  # first: nothing is to say that the files are there
    for name in names:
        file = cache / name
        file.unlink(missing_ok=True)
        sidecar(file).unlink(missing_ok=True)


def _files(record: Path) -> set[str]:
    """Return the paths in the cache that a record names; none for a damaged one."""
    try:
        return {str(item["path"]) for item in json.loads(record.read_text("utf-8"))["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return set()
