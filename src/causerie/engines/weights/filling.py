"""Steps shared by all fetches: each fetch fills the cache once, and later ones read it.

The order of steps: look in the cache, acquire the lock, look again, resolve the
addresses of the files, download, check, record. Every step may be cancelled; the
next try resumes an incomplete download. Knows nothing about the content of the
files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TypeVar

from causerie.engines.weights.cache import Cache, CachedWeights, StoredFile
from causerie.engines.weights.errors import CacheUnusable, Offline, WeightsError
from causerie.engines.weights.options import HubOptions
from causerie.engines.weights.progress import Progress
from causerie.engines.weights.reference import Reference
from causerie.engines.weights.transfer import (
    DownloadSource,
    download,
    ensure_space,
    partial_path,
    session,
)

T = TypeVar("T")


async def kept_or_fetched(
    reference: Reference,
    store: Cache,
    options: HubOptions,
    fetched: Callable[[], Awaitable[Sequence[StoredFile]]],
) -> CachedWeights:
    """Return the weights of ``reference`` in ``store``; ``fetched`` downloads missing ones."""
    if kept := await asyncio.to_thread(store.find, reference):
        return kept
    if options.offline:
        raise Offline(
            f"{reference} is not in the cache {store.folder}, and the network is switched off."
        )
    async with store.lock(reference):
        if kept := await asyncio.to_thread(store.find, reference):
            return kept
        try:
            files = await fetched()
            return await asyncio.to_thread(store.keep, reference, files)
        except OSError as error:
            raise CacheUnusable(store.folder, error) from error


async def looked_at(
    reference: Reference, own: Callable[[Reference], CachedWeights]
) -> CachedWeights:
    """Return the result of ``own`` for the path of ``reference``. Raises ``WeightsError``."""
    try:
        return await asyncio.to_thread(own, reference)
    except OSError as error:
        raise WeightsError(f"{reference} cannot be read: {error.strerror or error}.") from error


def hint(reference: Reference) -> str:
    """Return a hint, as a sentence, if a path that does not exist looks like a repository."""
    return f" A repository is written hf:{reference.name}." if reference.like_repository else ""


async def listed(
    reference: Reference,
    options: HubOptions,
    choose: Callable[[str, Sequence[str]], Sequence[str]],
) -> Sequence[DownloadSource]:
    """Return the files of a repository that ``choose`` takes, given its name and theirs."""
    from causerie.engines.weights import hub  # noqa: PLC0415 - 11 MB, for `hf:` models only

    return await _asked(partial(hub.sources, reference, options, choose))


async def filled(
    reference: Reference,
    sources: Sequence[DownloadSource],
    store: Cache,
    progress: Progress,
    options: HubOptions,
) -> list[StoredFile]:
    """Return all ``sources`` in the cache, those downloaded that are not there yet."""
    missing = lacking(reference, sources, store)
    places = {source.name: store.place(reference, source.name) for source in sources}
    needed = sum(_remaining(source, places[source.name]) for source in missing)
    ensure_space(store.home(reference), needed)
    files = []
    async with session(options) as client:
        for source in sources:
            file = StoredFile(places[source.name], source.sha256 or "")
            if source in missing:
                digest = await download(
                    source, file.path, client, progress=progress, options=options
                )
                file = StoredFile(file.path, digest)
                store.seal(file)  # so that another try does not fetch what is whole
            files.append(file)
    return files


def lacking(
    reference: Reference, sources: Sequence[DownloadSource], store: Cache
) -> Sequence[DownloadSource]:
    """Those of ``sources`` that are not in the cache, or may be there with another content."""
    return [one for one in sources if not _stored(store, one, store.place(reference, one.name))]


async def _asked(question: Callable[[], T]) -> T:
    """As by a thread of the loop, but at the end of the program nobody waits for this one."""
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()

    def ask() -> None:
        try:
            answer.set_result(question())
        except BaseException as error:  # noqa: BLE001 - whoever asked waits for it
            answer.set_exception(error)

    Thread(target=ask, daemon=True).start()
    return await asyncio.wrap_future(answer)


def _stored(store: Cache, source: DownloadSource, target: Path) -> bool:
    return (
        source.sha256 is not None
        and store.checksum(target) == source.sha256
        and target.stat().st_size == source.size
    )


def _remaining(source: DownloadSource, target: Path) -> int:
    """Return the number of bytes still to download."""
    partial = partial_path(source, target)
    here = partial.stat().st_size if source.sha256 and partial.exists() else 0
    return max((source.size or 0) - here, 0)
