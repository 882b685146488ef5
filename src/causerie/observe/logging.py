"""Structured log lines, with the request id on each and never with contents."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from select import select
from time import monotonic
from typing import Any, Literal, Protocol, TextIO, TypeVar, cast, get_args

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "console"]

CLOCK = "%H:%M:%S"
"""Time of a line for people."""

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""Id of the request of the current task, which is on every line."""

_colours = True
_encoder = msgspec.json.Encoder(enc_hook=str)
_NUMBERS = {level: logging.getLevelNamesMapping()[level.upper()] for level in get_args(Level)}


def configure(
    level: Level = "info",
    form: Format = "auto",
    stream: TextIO | None = None,
    *,
    colours: bool = True,
) -> None:
    """Set up logging for the process, also of other libraries; by default to stderr.

    ``auto`` writes text with local time to a terminal, with ``colours`` or not, and JSON lines in
    UTC elsewhere.
    """
    global _colours  # noqa: PLW0603 - logging is set up once for the process
    _colours = colours
    out = stream if stream is not None else sys.stderr
    is_json = form == "json" or (form == "auto" and not out.isatty())
    least = _NUMBERS[level]
    shared: list[Processor] = [
        _add_request_id,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso" if is_json else CLOCK, utc=is_json, key="time"),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out) if stream is not None else _Stderr()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_build_renderers(out, is_json=is_json),
            ],
        )
    )
    handler.set_name("json" if is_json else "console")
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(least)
    # The client of the hub tells the addresses of files, and those may be signed.
    for name in ("alembic", "asyncio", "httpx2", "huggingface_hub"):
        logging.getLogger(name).setLevel(max(least, logging.WARNING))


def _uses_colour(out: TextIO) -> bool:
    return _colours and out.isatty()


def _add_request_id(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    if identifier := request_id.get():
        event.setdefault("request_id", identifier)
    return event


def wanted(level: Level) -> bool:
    """Return true if lines of this level are written."""
    return _NUMBERS[level] >= logging.root.level  # at first from warnings on


def lines_of() -> tuple[TextIO, bool]:
    """Return the stream of log lines and whether they are JSON; before setup stderr and false."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.name in ("json", "console"):
            return cast(TextIO, handler.stream), handler.name == "json"
    return sys.stderr, False


class _Stderr(logging.StreamHandler[TextIO]):
    # sys.stderr changes while a progress bar is shown.

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        """Ignore the stream that the base class sets."""


def _build_renderers(out: TextIO, *, is_json: bool) -> list[Processor]:
    # Values of variables are left out of tracebacks: they may be contents.
    if is_json:
        tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        return [structlog.processors.ExceptionRenderer(tracebacks), _render_json_line]
    return [
        structlog.dev.ConsoleRenderer(
            timestamp_key="time",
            colors=_uses_colour(out),
            sort_keys=False,
            exception_formatter=structlog.dev.plain_traceback,
        )
    ]


def _render_json_line(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    first = {key: event.pop(key) for key in ("time", "level", "event") if key in event}
    return _encoder.encode({**first, **event}).decode()


_SECONDS = 0.25
_MOST = 256  # lines; more would hold up what else there is to do while they are written
_WHOLE_BYTES = 4096  # a pipe takes so many in one piece, whoever else writes to it (POSIX PIPE_BUF)
_Subject = TypeVar("_Subject", contravariant=True)
RequestLevel = Literal["info", "warning"]


class LineFormat(Protocol[_Subject]):
    """Interface of a formatter of one kind of subjects, as JSON lines and as terminal lines."""

    def line(self, subject: _Subject, when: datetime) -> object: ...
    def text(self, subject: _Subject, clock: str, *, colours: bool) -> str: ...


class LogBuffer:
    """Collects frequent log lines, and writes them together within a quarter of a second."""

    def __init__(self) -> None:
        self._unformatted_lines: list[tuple[LineFormat[Any], Any, datetime]] = []
        self._flush_timer: asyncio.TimerHandle | None = None

    def tell(self, level: RequestLevel, form: LineFormat[_Subject], subject: _Subject) -> None:
        """Queue a line, still unformatted, if lines of its level are written."""
        if not wanted(level):
            return
        self._unformatted_lines.append((form, subject, datetime.now(UTC)))
        if len(self._unformatted_lines) >= _MOST:
            self.flush()
        elif self._flush_timer is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                self.flush()
            else:
                self._flush_timer = loop.call_later(_SECONDS, self.flush)

    def flush(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        kept, self._unformatted_lines = self._unformatted_lines, []
        out, is_json = lines_of()
        if is_json:
            lines = [form.line(subject, when) for form, subject, when in kept]
            for piece in _encode_log_lines_as_text_pieces(lines):
                out.write(piece)
                out.flush()
            return
        colours = _uses_colour(out)
        for form, subject, when in kept:
            clock = f"{when.astimezone():{CLOCK}}"
            out.write(form.text(subject, clock, colours=colours) + "\n")
        out.flush()


def _encode_log_lines_as_text_pieces(line_objects: Sequence[object]) -> Iterator[str]:
    piece: list[bytes] = []
    size = 0
    for line in line_objects:
        text = _encoder.encode(line) + b"\n"
        if piece and size + len(text) > _WHOLE_BYTES:
            yield b"".join(piece).decode()
            piece, size = [], 0
        piece.append(text)
        size += len(text)
    if piece:
        yield b"".join(piece).decode()


_OUTAGE_SECONDS = 60.0


class Outage:
    """Logs that something cannot be used: at once, once a minute, and when it is back."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.lasts = False
        self._next_outage_warning_time = 0.0

    def seen(self, **facts: object) -> None:
        """Record that the thing could not be used; log a warning, at most one a minute."""
        self.lasts = True
        if (now := monotonic()) >= self._next_outage_warning_time:
            self._next_outage_warning_time = now + _OUTAGE_SECONDS
            structlog.get_logger(__name__).warning(f"{self.what} cannot be used", **facts)

    def over(self) -> None:
        """Record that the thing could be used; log this if an outage was recorded before."""
        if self.lasts:
            self.lasts = False
            structlog.get_logger(__name__).info(f"{self.what} can be used again")


# The terminal may be closed, its reader may be gone or slow, the disk may be full: output is lost
# then.

_PATIENCE = 0.25  # seconds
_PIECE = 4096  # bytes, for which a pipe with room has a page


class _Heedless:
    # Writing never fails. A slow reader is waited for a moment, then not at all until there is
    # room again.

    def __init__(self, stream: TextIO) -> None:
        self._wrapped_stream = stream
        self._can_poll_for_room = _can_poll(stream)
        self._max_reader_wait_seconds = _PATIENCE

    def __getattr__(self, name: str) -> object:
        return getattr(self._wrapped_stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError):
            if self._can_poll_for_room:
                self._write_while_ready_or_drop(text)
            else:
                self._wrapped_stream.write(text)
        return len(text)

    def _write_while_ready_or_drop(self, text: str) -> None:
        ends = monotonic() + self._max_reader_wait_seconds
        for piece in _split_into_pieces_at_line_ends(text):
            _, room, _ = select([], [self._wrapped_stream], [], max(ends - monotonic(), 0))
            self._max_reader_wait_seconds = _PATIENCE if room else 0.0
            if not room:
                return
            self._wrapped_stream.write(piece)
            self._wrapped_stream.flush()

    def flush(self) -> None:
        with suppress(OSError):
            self._wrapped_stream.flush()


def _split_into_pieces_at_line_ends(text: str) -> Iterator[str]:
    most = _PIECE if text.isascii() else _PIECE // 4
    start = 0
    while start < len(text):
        end = text.rfind("\n", start, start + most) + 1 or start + most
        yield text[start:end]
        start = end


def _can_poll(stream: TextIO) -> bool:
    try:
        return sys.platform != "win32" and not stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except OSError:
        return False


@contextmanager
def heedless() -> Iterator[None]:
    """Ignore failures to write to stderr during the block."""
    with redirect_stderr(cast(TextIO, _Heedless(sys.stderr))):
        yield
