"""From a reference to a model folder on this disk, as repositories of the hub have them.

    config.json  tokenizer.json  ...  model-00001-of-00002.safetensors  ...

The steps are :mod:`.filling`'s. Nothing is fetched that runs when it is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from causerie.engines.weights.cache import (
    CachedWeights,
    FolderCache,
    OpenVinoCache,
    OutlineCache,
    StoredFile,
)
from causerie.engines.weights.errors import (
    BadReference,
    NoGgufFile,
    NotForOpenVino,
    Offline,
    WeightsNotFound,
)
from causerie.engines.weights.fetching import fetch
from causerie.engines.weights.filling import (
    filled,
    hint,
    kept_or_fetched,
    lacking,
    listed,
    looked_at,
)
from causerie.engines.weights.folder import OPENVINO, OPENVINO_MODEL
from causerie.engines.weights.folder_selection import (
    INDEX,
    choose_folder,
    choose_openvino,
    choose_outline,
    ensure_complete,
    is_of_folder,
)
from causerie.engines.weights.options import HubOptions
from causerie.engines.weights.progress import Progress
from causerie.engines.weights.reference import Kind, Reference
from causerie.engines.weights.selection import CONFIG
from causerie.engines.weights.transfer import DownloadSource

_CHOICES = {
    FolderCache: choose_folder,
    OutlineCache: choose_outline,
    OpenVinoCache: choose_openvino,
}


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
        return await looked_at(reference, _own)
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
    store = FolderCache(cache)
    if not weights:
        if whole := await asyncio.to_thread(store.find, reference):
            return whole
        store = OutlineCache(cache)
    return await _kept_or_fetched(reference, store, progress, options)


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
        return await looked_at(reference, _own)
    if reference.kind is Kind.HUB and reference.wanted is None:
        # Without the network the file may be here, though the folder is not.
        with suppress(NotForOpenVino, Offline):
            return await _kept_or_fetched(reference, OpenVinoCache(cache), progress, options)
    try:
        return await fetch(reference, cache, progress=progress, hub=options)
    except NoGgufFile as error:
        raise WeightsNotFound(
            f"{error.repository} holds neither {OPENVINO_MODEL} nor a .gguf file; "
            "look for a repository with one of them."
        ) from None


async def _kept_or_fetched(
    reference: Reference, store: FolderCache, progress: Progress, options: HubOptions
) -> CachedWeights:
    bring = partial(_fetched, reference, store, progress, options)
    return await kept_or_fetched(reference, store, options, bring)


def _own(reference: Reference) -> CachedWeights:
    """Return a folder of the user's own. The engine checks that its weights can be read."""
    path = reference.path.absolute()
    if not path.is_dir():
        kind = "does not exist"
        if path.exists():
            gguf = path.name.lower().endswith(".gguf")
            kind = "is a GGUF file, for the engine llamacpp" if gguf else "is a file, not a folder"
        raise WeightsNotFound(f"{path} {kind}; name a model folder.{hint(reference)}")
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


async def _fetched(
    reference: Reference, store: FolderCache, progress: Progress, options: HubOptions
) -> Sequence[StoredFile]:
    choose = _CHOICES[type(store)]
    sources = await listed(reference, options, choose)
    whole = _Whole(progress)
    progress.started(_size(lacking(reference, sources, store)), f"Fetching {reference.name}")
    # Before gigabytes that are of no use are fetched.
    index = [source for source in sources if source.name == INDEX]
    files = await filled(reference, index, store, whole, options)
    for file in files:
        names = {source.name for source in sources}
        await asyncio.to_thread(ensure_complete, reference.name, file.path, names)
    rest = [source for source in sources if source.name != INDEX]
    files += await filled(reference, rest, store, whole, options)
    await asyncio.to_thread(store.sweep, reference, files)
    progress.finished()
    return files


def _size(sources: Sequence[DownloadSource]) -> int | None:
    """Return the total bytes, if all sizes were announced."""
    sizes = [source.size for source in sources if source.size is not None]
    return sum(sizes) if len(sizes) == len(sources) else None


class _Whole:
    """Passes on what came, and no single file: who waits, waits for the folder."""

    def __init__(self, progress: Progress) -> None:
        self.advanced = progress.advanced

    def started(self, total: int | None, label: str) -> None:
        """Ignore a single file."""

    def finished(self) -> None:
        """Ignore a single file."""
