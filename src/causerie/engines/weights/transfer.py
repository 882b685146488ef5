"""Downloads one file over HTTP: resumed where it broke off, checked, then moved into place.

Knows nothing about what the file is for. ``file:`` addresses are copied.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import re
import shutil
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit
from urllib.request import url2pathname

import aiohttp

from causerie.engines.weights import HubOptions, Progress, errors

_CHUNK = 1 << 20  # bytes
_PASSING = frozenset((408, 425, 429, 500, 502, 503, 504))  # statuses worth another try
_RANGE = re.compile(r"bytes (\d+)-")
_SLACK = 32 << 20  # bytes left free on the disk


@dataclass(frozen=True, slots=True)
class DownloadSource:
    """A file to fetch. ``size`` (bytes) and ``sha256`` (hex) where they were announced."""

    name: str
    url: str
    size: int | None
    sha256: str | None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class _Broken(Exception):
    def __init__(self, why: str, *, restart: bool = False) -> None:
        super().__init__(why)
        self.restart = restart


class HashedFile:
    """A file with the SHA-256 of what was written to it; blocking calls are made in threads."""

    def __init__(self, file: BinaryIO, progress: Progress) -> None:
        self._file = file
        self._progress_reporter = progress
        self.digest = hashlib.sha256()
        self.size = 0

    async def resume(self) -> None:
        self._file.seek(0)
        while chunk := await asyncio.to_thread(self._file.read, _CHUNK):
            await asyncio.to_thread(self.digest.update, chunk)
            self.size += len(chunk)
        self._progress_reporter.advanced(self.size)

    def restart(self) -> None:
        self._progress_reporter.advanced(-self.size)
        self._file.truncate(0)
        self.digest = hashlib.sha256()
        self.size = 0

    async def write(self, chunk: bytes) -> None:
        def write() -> None:
            self._file.write(chunk)
            self._file.flush()
            self.digest.update(chunk)

        await asyncio.to_thread(write)
        self.size += len(chunk)
        self._progress_reporter.advanced(len(chunk))


def partial_path(source: DownloadSource, target: Path) -> Path:
    """Return the path of ``target``'s partial file, with the announced checksum in its name."""
    return target.with_name(f"{target.name}.{(source.sha256 or 'unknown')[:16]}.partial")


def ensure_space(folder: Path, needed: int) -> None:
    """Raise :class:`NoSpace` unless ``folder`` has room for ``needed`` bytes and 32 MiB more."""
    free = shutil.disk_usage(folder).free
    if needed + _SLACK > free:
        raise errors.NoSpace(folder, needed + _SLACK, free)


def session(options: HubOptions, certificates: Path | None = None) -> aiohttp.ClientSession:
    """Return an HTTP client with the environment's proxies that trusts the ``certificates``."""
    trust: ssl.SSLContext | bool = True
    if certificates is not None:
        path, folder = str(certificates), certificates.is_dir()
        try:
            trust = ssl.create_default_context(
                cafile=None if folder else path, capath=path if folder else None
            )
        except (OSError, ssl.SSLError) as error:
            raise errors.WeightsError(f"{path} holds no usable certificates: {error}.") from error
    timeout = aiohttp.ClientTimeout(
        total=None, sock_connect=options.read_seconds, sock_read=options.read_seconds
    )
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=trust),
        trust_env=True,
        timeout=timeout,
        auto_decompress=False,
        headers={"Accept-Encoding": "identity"},
    )


async def download(
    source: DownloadSource,
    target: Path,
    client: aiohttp.ClientSession,
    *,
    progress: Progress,
    options: HubOptions,
) -> str:
    """Fetch ``source`` to ``target`` and return the SHA-256 of the file, in hex.

    The rest of an earlier try is resumed if its content was announced by checksum. Atomic:
    ``target`` is whole or not there. Raises ``WeightsError``.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_path(source, target)
    if source.sha256 is None:
        partial.unlink(missing_ok=True)
    here = partial.stat().st_size if partial.exists() else 0
    ensure_space(target.parent, max((source.size or 0) - here, 0))
    progress.started(source.size, f"Fetching {Path(source.name).name}")
    try:
        with partial.open("a+b") as file:
            sink = HashedFile(file, progress)
            await sink.resume()
            await _download_rest(source, sink, client, options)
            found = sink.digest.hexdigest()
    except OSError as error:
        folder = target.parent
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(folder).free
            raise errors.NoSpace(folder, source.size or 0, free) from error
        why = error.strerror or error
        raise errors.WeightsError(f"{folder} cannot be written to: {why}.") from error
    if source.sha256 is not None and found != source.sha256:
        partial.unlink()
        raise errors.ChecksumMismatch(source.name, source.sha256, found)
    partial.replace(target)
    for left in target.parent.iterdir():  # of earlier contents
        if left.name.startswith(f"{target.name}.") and left.suffix == ".partial":
            left.unlink(missing_ok=True)
    progress.finished()
    return found


async def _download_rest(
    source: DownloadSource, sink: HashedFile, client: aiohttp.ClientSession, options: HubOptions
) -> None:
    failures, pause, furthest = 0, options.retry_seconds, sink.size
    if source.size is not None and sink.size > source.size:
        sink.restart()
    while source.size is None or sink.size != source.size:
        why = await _try_download_rest_or_tell_why(source, sink, client)
        if not why:
            return
        moved = sink.size > furthest
        furthest = max(sink.size, furthest)
        failures = 1 if moved else failures + 1
        if failures > options.attempts:
            host = urlsplit(source.url).hostname or "The index"
            raise errors.NoNetwork(
                f"{host} broke off too often while {source.name} was fetched: {why}; "
                "what is here is kept, try again."
            )
        await asyncio.sleep(pause)
        pause = options.retry_seconds if moved else pause * 2


async def _try_download_rest_or_tell_why(
    source: DownloadSource, sink: HashedFile, client: aiohttp.ClientSession
) -> str:
    try:
        async with aclosing(_source_chunks(source, sink.size, client)) as pieces:
            async for chunk in pieces:
                await sink.write(chunk)
                if source.size is not None and sink.size > source.size:
                    break  # it may never end
    except (_Broken, aiohttp.ClientError, TimeoutError) as error:
        unsure = source.sha256 is None  # nothing would tell whether the rest fits
        if unsure or (isinstance(error, _Broken) and error.restart):
            sink.restart()
        return str(error).rstrip(".") or "it went silent"
    if source.size is None or sink.size == source.size:
        return ""
    if sink.size > source.size:
        sink.restart()
        return "it sent more than was announced"
    return "it ended early"


async def _source_chunks(
    source: DownloadSource, start: int, client: aiohttp.ClientSession
) -> AsyncGenerator[bytes, None]:
    if urlsplit(source.url).scheme == "file":
        path = local_path(source.url)
        try:
            with path.open("rb") as file:
                file.seek(start)
                while chunk := await asyncio.to_thread(file.read, _CHUNK):
                    yield chunk
        except FileNotFoundError:
            why = "is named by the package index but is not there"
            raise errors.WeightsNotFound(f"{path} {why}.") from None
        return
    headers = dict(source.headers)
    if start:
        headers["Range"] = f"bytes={start}-"
    async with client.get(source.url, headers=headers) as response:
        _check_response(source, response, start)
        async for chunk in response.content.iter_chunked(_CHUNK):
            yield chunk


def _check_response(source: DownloadSource, response: aiohttp.ClientResponse, start: int) -> None:
    status, host = response.status, response.url.host
    span = _RANGE.match(response.headers.get("Content-Range", ""))
    begin = int(span.group(1)) if status == 206 and span else 0
    if status == 416 or (status in (200, 206) and begin != start):
        raise _Broken("it does not continue where it was asked to", restart=True)
    if status in (200, 206):
        return
    if status in _PASSING:
        raise _Broken(f"it answered {status}")
    if status in (401, 403):
        raise errors.Gated(
            f"{host} refused {source.name} with {status}: "
            "give a token that may read it in HF_TOKEN."
        )
    if status in (404, 410):
        raise errors.WeightsNotFound(f"{host} has no {source.name} any more ({status}).")
    raise errors.WeightsError(f"{host} answered {status} when asked for {source.name}.")


def local_path(url: str) -> Path:
    return Path(url2pathname(urlsplit(url).path))
