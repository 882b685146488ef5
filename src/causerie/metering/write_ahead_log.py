"""Usage records on disk until the database has them, in files that are only appended to."""

from __future__ import annotations

import asyncio
import os
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog
from filelock import FileLock, Timeout

from causerie.metering.ledger import UsageRecord

log = structlog.get_logger(__name__)

_PART_BYTES = 4 * 1024 * 1024
_CHECK_BYTES = 64 * 1024  # more than a record, and more than the rest of a block
_SUFFIX = ".journal"
_RUNNING = b"running "  # no checksum: versions that do not know these lines pass over them
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(UsageRecord).decode


class WriteAheadLogTaken(Exception):
    """Raised if another process uses the folder of the journal."""


class WriteAheadLog:
    """The journal in one folder, which a lock keeps for one process.

    A line is a checksum and a record as JSON; what a crash cut off fails its checksum. Records
    survive the end of the process, and with ``sync`` a power cut, at the price of waiting for the
    disk. A starting request has a marked line, which its record at the end replaces by its id. A
    new file is started after ``part_bytes``; a file is removed when the database has all of it.
    """

    def __init__(self, folder: Path, *, sync: bool = False, part_bytes: int = _PART_BYTES) -> None:
        """Make and lock the folder; raise :class:`WriteAheadLogTaken` or :class:`OSError`."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._is_sync_required = sync
        self._max_part_bytes = part_bytes
        self._folder_lock = FileLock(folder / "lock", timeout=0)
        try:
            self._folder_lock.acquire()
        except Timeout as failure:
            raise WriteAheadLogTaken(f"another process writes its usage to {folder}") from failure
        self._newest_mark = 0
        self._newest_synced_mark = 0
        self._failed_marks = range(0)  # of what the disk did not keep when it was last asked to
        self._flush_lock = asyncio.Lock()
        self._current_fd: int | None = None
        self._unflushed_fds: list[int] = []  # files that are full and still to be flushed
        self._running_line_by_id: dict[str, bytes] = {}  # lines of requests that run
        self._file_bytes = 0
        self._next_part_at_bytes = 0  # size of the file with which the next one is started
        self._part_number = 0
        self._full_parts: deque[tuple[int, Path]] = deque()  # the last mark of each that is full

    def left(self) -> Sequence[UsageRecord]:
        """Return records of an earlier process; the last are those of interrupted requests."""
        ended: list[UsageRecord] = []
        running: dict[str, UsageRecord] = {}
        for part in self._list_part_files():
            for record, ends in _read_records_and_ended_flags(part):
                if ends:
                    ended.append(record)
                else:
                    running[record.id] = record
        for record in ended:
            running.pop(record.id, None)
        return [*ended, *running.values()]

    def begin(self) -> None:
        """Remove the files of earlier processes, and start a new one."""
        for part in self._list_part_files():
            part.unlink()
        self._begin_next_part()

    def begin_request(self, record: UsageRecord) -> None:
        """Append the record that a request leaves if the process ends; raise :class:`OSError`."""
        line = _RUNNING + _encode_record_line(record)
        self._append_line_without_mark(line)
        self._running_line_by_id[record.id] = line

    def write(self, record: UsageRecord) -> int:
        """Append the record of an ended request, and return its mark; raise :class:`OSError`."""
        self._running_line_by_id.pop(record.id, None)
        self._append_line_without_mark(_encode_record_line(record))
        self._newest_mark += 1
        if self._file_bytes >= self._next_part_at_bytes:
            self._next_part_at_bytes = self._file_bytes + self._max_part_bytes
            with suppress(OSError):  # this one goes on until there can be another
                self._begin_next_part()
        return self._newest_mark

    def _append_line_without_mark(self, line: bytes) -> None:
        if self._current_fd is None:
            raise OSError("the journal is not open")
        written = os.write(self._current_fd, line)
        if written != len(line):  # a full disk: the next line must not stand behind a piece
            os.ftruncate(self._current_fd, self._file_bytes)
            raise OSError("the disk takes no more")
        self._file_bytes += written

    def check(self) -> None:
        """Raise :class:`OSError` if the disk would not take a record now."""
        size = self._file_bytes
        try:
            self._append_line_without_mark(bytes(_CHECK_BYTES))
        finally:
            if self._current_fd is not None:
                os.ftruncate(self._current_fd, size)
                self._file_bytes = size

    async def flushed(self, mark: int) -> None:
        """Return when everything up to a mark is safe; raise :class:`OSError`."""
        if not self._is_sync_required:
            return
        async with self._flush_lock:
            if mark in self._failed_marks:
                raise OSError("the disk did not keep it")  # it says so only once itself
            if self._current_fd is None or mark <= self._newest_synced_mark:
                return
            reached, full = self._newest_mark, tuple(self._unflushed_fds)
            try:
                for file in (*full, self._current_fd):
                    await asyncio.to_thread(_flush_and_close, os.dup(file))
            except OSError:
                self._failed_marks = range(self._newest_synced_mark + 1, reached + 1)
                raise
            self._newest_synced_mark = reached
            del self._unflushed_fds[: len(full)]
            for file in full:
                _close_file(file)

    def set_aside(self, record: UsageRecord) -> None:
        """Write a record that the database refuses to a file that is never removed."""
        with suppress(OSError), (self._folder / "refused").open("ab") as file:
            file.write(_encode_record_line(record))  # where it cannot be, the log has it

    def applied(self, mark: int) -> None:
        """Remove the files whose records the database has up to this mark."""
        while self._full_parts and self._full_parts[0][0] <= mark:
            _, part = self._full_parts.popleft()
            with suppress(OSError):  # one that stays is read again, and each record counts once
                part.unlink()

    def close(self) -> None:
        if self._current_fd is not None:
            self._unflushed_fds.append(self._current_fd)
            self._current_fd = None
        while self._unflushed_fds:
            _close_file(self._unflushed_fds.pop())
        self._folder_lock.release()

    def _begin_next_part(self) -> None:
        # Lines of all running requests are copied, so the files before it can be removed.
        part = self._part_path(self._part_number + 1)
        content = b"".join(self._running_line_by_id.values())
        file = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
        try:
            written = os.write(file, content) if content else 0
            if written != len(content):
                raise OSError("the disk takes no more")
        except OSError:
            os.close(file)
            part.unlink()
            raise
        full, self._current_fd, self._file_bytes = self._current_fd, file, written
        self._next_part_at_bytes = written + self._max_part_bytes
        if full is not None:
            self._full_parts.append((self._newest_mark, self._part_path(self._part_number)))
            self._unflushed_fds.append(full)
        self._part_number += 1
        while self._unflushed_fds and not self._is_sync_required:
            _close_file(self._unflushed_fds.pop())

    def _part_path(self, part_number: int) -> Path:
        return self._folder / f"{part_number:08d}{_SUFFIX}"

    def _list_part_files(self) -> list[Path]:
        return sorted(self._folder.glob(f"*{_SUFFIX}"))


def _encode_record_line(record: UsageRecord) -> bytes:
    data = _encode(record)
    return b"%08x %s\n" % (zlib.crc32(data), data)


def _close_file(descriptor: int) -> None:
    with suppress(OSError):  # what it says of data is told where that has to be safe
        os.close(descriptor)


def _flush_and_close(descriptor: int) -> None:
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _read_records_and_ended_flags(path: Path) -> Iterator[tuple[UsageRecord, bool]]:
    lines = path.read_bytes().split(b"\n")
    for line in lines[:-1]:  # the last is empty, or was cut off
        checksum, _, data = line.removeprefix(_RUNNING).partition(b" ")
        if checksum == b"%08x" % zlib.crc32(data):
            yield _decode(data), not line.startswith(_RUNNING)
        else:
            log.warning("a line of the usage journal is damaged", file=path.name)
