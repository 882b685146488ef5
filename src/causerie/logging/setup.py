"""Log lines: structured, with the request id on each, never with contents.

Lines of other libraries come out in the same form. Everything goes to stderr;
stdout belongs to the command that runs.
"""

from __future__ import annotations

import logging
import sys
from contextvars import ContextVar
from typing import Literal, TextIO, cast, get_args

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "console"]

CLOCK = "%H:%M:%S"
"""Time of a line for people."""

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The request that the current task answers; it is on every line that the task logs."""

_NUMBERS = {level: logging.getLevelNamesMapping()[level.upper()] for level in get_args(Level)}
_shown: set[Level] = {"warning", "error"}  # until it is set up
# The client of the hub tells the addresses of files, and those may be signed.
_QUIET = dict.fromkeys(("alembic", "asyncio", "httpx2", "huggingface_hub"), logging.WARNING)


def configure(level: Level = "info", form: Format = "auto", stream: TextIO | None = None) -> None:
    """Set up logging for the whole process; a later call replaces an earlier one.

    ``auto`` writes coloured text to a terminal and one JSON object a line elsewhere. Text has the
    time of this machine's clock, JSON has date and time in UTC.
    """
    out = stream if stream is not None else sys.stderr
    is_json = _is_json(form, out)
    shared: list[Processor] = [
        _with_request,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso" if is_json else CLOCK, utc=is_json, key="time"),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(_number(level)),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out) if stream is not None else _Stderr()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *(_json_renderers() if is_json else _console_renderers(out)),
            ],
        )
    )
    handler.set_name("json" if is_json else "console")
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(_number(level))
    _shown.clear()
    _shown.update(one for one in get_args(Level) if _number(one) >= _number(level))
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(max(least, _number(level)))


def _with_request(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    identifier = request_id.get()
    if identifier:
        event.setdefault("request_id", identifier)
    return event


def wanted(level: Level) -> bool:
    """Return true if lines of this level are written."""
    return level in _shown


def lines_of() -> tuple[TextIO, bool]:
    """Return the stream of log lines, and whether they are JSON; stderr before it is set up."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.name in ("json", "console"):
            return cast(TextIO, handler.stream), handler.name == "json"
    return sys.stderr, False


def _is_json(form: Format, out: TextIO) -> bool:
    return form == "json" or (form == "auto" and not out.isatty())


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to what ``sys.stderr`` is at that moment: above a progress bar while there is one."""

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        """The base class sets it; there is nothing to keep."""


def _console_renderers(out: TextIO) -> list[Processor]:
    """Tracebacks are shown without the values of variables: those may be contents."""
    return [
        structlog.dev.ConsoleRenderer(
            timestamp_key="time",
            colors=out.isatty(),
            sort_keys=False,
            exception_formatter=structlog.dev.plain_traceback,
        )
    ]


def _json_renderers() -> list[Processor]:
    transformer = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    return [structlog.processors.ExceptionRenderer(transformer), _json]


def _json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    """One line; the order is time, level, event, then the rest."""
    first = {key: event.pop(key) for key in ("time", "level", "event") if key in event}
    return msgspec.json.encode({**first, **event}, enc_hook=str).decode()


def _number(level: Level) -> int:
    return _NUMBERS[level]
