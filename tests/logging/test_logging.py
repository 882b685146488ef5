"""Log lines: their form, the request id on each, and no locals of a traceback."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import io
import json
import logging
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
import structlog
from casekit import each_of
from hub import gguf, serving

from causerie.engines.weights import HubOptions, Silent
from causerie.engines.weights.fetching import fetch
from causerie.metering.meter import Record, RequestLog
from causerie.observe.logging import LogBuffer, Outage, configure, request_id
from causerie.protocol.events import Usage


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_outage_has_a_line_at_once_one_a_minute_and_one_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream, now = io.StringIO(), 1000.0
    configure("info", "json", stream)
    monkeypatch.setattr("causerie.observe.logging.monotonic", lambda: now)
    outage = Outage("the database")
    outage.over()
    for now in (1000.0, 1000.5, 1059.0, 1061.0):  # noqa: B007 - what the clock says
        outage.seen(reason="no route")
        assert outage.lasts
    outage.over()
    outage.over()
    now = 1062.0
    outage.seen(reason="no route")  # it comes and goes
    assert [(one["event"], one.get("reason")) for one in lines(stream)] == [
        ("the database cannot be used", "no route"),
        ("the database cannot be used", "no route"),
        ("the database can be used again", None),
    ]


def test_json_lines_carry_the_request_that_a_task_answers() -> None:
    stream = io.StringIO()
    configure("info", "json", stream)

    def work() -> None:
        request_id.set("r-1")
        structlog.get_logger().info("answered", tokens=3)
        logging.getLogger("other.library").warning("from %s", "elsewhere")

    contextvars.copy_context().run(work)
    ours, theirs = lines(stream)
    assert list(ours)[:3] == ["time", "level", "event"]
    assert (ours["event"], ours["tokens"], ours["request_id"]) == ("answered", 3, "r-1")
    assert (theirs["event"], theirs["logger"], theirs["level"], theirs["request_id"]) == (
        "from elsewhere",
        "other.library",
        "warning",
        "r-1",
    )


def test_level_holds_for_both_kinds() -> None:
    stream = io.StringIO()
    configure("warning", "json", stream)
    structlog.get_logger().info("no")
    logging.getLogger("aiohttp").info("no")
    structlog.get_logger().warning("yes")
    assert [line["event"] for line in lines(stream)] == ["yes"]


async def test_no_address_of_weights_is_told(tmp_path: Path) -> None:
    """Those of a gated model are signed: whoever has one may fetch it."""
    stream = io.StringIO()
    async with serving() as hub:
        hub.repositories["org/repo"] = {"m.gguf": gguf()}
        configure("info", "json", stream)
        options = HubOptions(endpoint=hub.url)
        await fetch("hf:org/repo", tmp_path, progress=Silent(), hub=options)
    assert lines(stream) == []


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_traceback_shows_no_values(form: Literal["json", "console"]) -> None:
    stream = io.StringIO()
    configure("info", form, stream)
    prompt = "what the " + "user wrote"  # so that the line of code does not hold it
    try:
        raise ValueError(len(prompt))
    except ValueError:
        structlog.get_logger().exception("failed")
    assert "what the user wrote" not in stream.getvalue()
    assert "ValueError" in stream.getvalue()


def test_console_has_text() -> None:
    stream = io.StringIO()
    configure("info", "console", stream)
    structlog.get_logger().info("ready", port=8000)
    assert "ready" in stream.getvalue()
    assert "port=8000" in stream.getvalue()
    assert re.match(r"\d\d:\d\d:\d\d \[info", stream.getvalue())


def test_auto_is_json_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    configure("info", "auto", stream)
    structlog.get_logger().info("ready")
    assert lines(stream)[0]["event"] == "ready"


def test_a_request_is_one_line_of_numbers_and_names() -> None:
    stream = io.StringIO()
    configure("info", "json", stream)
    record = Record("r-1", "endpoint", "ck_a", model="m", served_by="m", status=200, code=None)
    record.used, record.first_token_seconds = Usage(5, 7, estimated=True), 0.0123
    record.tried = ["a/m: bad_gateway", "m: answered"]
    log = RequestLog(LogBuffer())
    log.write(record)
    log.write(Record("r-2", "endpoint", "ck_a", status=502, code="bad_gateway"))
    log.write(answered(cost=12_500_000))
    plain, failed, priced = lines(stream)
    assert priced["cost"] == 0.0125
    assert (plain["level"], plain["event"]) == ("info", "request")
    assert (plain["request_id"], plain["completion"]) == ("r-1", 7)
    assert "cost" not in plain
    assert plain["first_token_ms"] == 12.3
    assert plain["tried"] == ["a/m: bad_gateway", "m: answered"]
    assert plain["estimated"] is True
    assert (failed["level"], failed["code"]) == ("warning", "bad_gateway")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def answered(**facts: Any) -> Record:
    """A record of a streamed reply of 41 tokens, in 2.5 s after half a second."""
    record = Record("r-1", "chat", "ck_a", model="m", stream=True, status=200, code=None)
    record.used, record.first_token_seconds, record.duration_seconds = Usage(15, 41), 0.5, 3.0
    return msgspec.structs.replace(record, **facts)


def on_a_terminal(record: Record, stream: io.StringIO, *, shows_door: bool = False) -> str:
    configure("info", "console", stream)
    log = RequestLog(LogBuffer())
    log.shows_door = shows_door
    log.write(record)
    clock, line = stream.getvalue().removesuffix("\n").split(" ", 1)
    assert re.fullmatch(r"(\x1b\[2m)?\d\d:\d\d:\d\d(\x1b\[0m)?", clock)
    assert "\n" not in line
    return line


@each_of(
    ("record", "line"),
    [
        (answered(), "200 m  15 in, 41 out  TTFT 0.50 s  16.4 tok/s  3.00 s"),
        (answered(stream=False), "200 m  15 in, 41 out  13.7 tok/s  3.00 s"),
        (
            answered(cost=12_500),
            "200 m  15 in, 41 out  TTFT 0.50 s  16.4 tok/s  3.00 s  $0.0000125",
        ),
        (
            Record("r-2", "chat", "ck_a", status=404, code="model_not_found", asked="n"),
            "404 n  model_not_found  0.00 s",
        ),
        (
            Record("r-3", "chat", "ck_a", model="m", status=502, code="bad_gateway"),
            "502 m  bad_gateway  r-3  0.00 s",
        ),
        (Record("r-4", "chat", "ck_a", status=401, code="bad_key"), "401 -  bad_key  0.00 s"),
    ],
)
def test_a_request_is_one_short_line_on_a_terminal(record: Record, line: str) -> None:
    assert on_a_terminal(record, io.StringIO()) == line


def test_the_line_on_a_terminal_names_the_door_where_there_are_several() -> None:
    assert on_a_terminal(answered(), io.StringIO(), shows_door=True).endswith("3.00 s  chat")


@pytest.mark.parametrize(("status", "colour"), [(200, 32), (429, 33), (503, 31)])
def test_the_status_has_a_colour_on_a_terminal(status: int, colour: int) -> None:
    line = on_a_terminal(answered(status=status), Terminal())
    assert line.startswith(f"\x1b[{colour}m{status}\x1b[0m m  ")


class Bare(msgspec.Struct, frozen=True):
    time: datetime
    level: Literal["info", "warning"]
    event: str


class Number(Bare, frozen=True):
    number: int


class News:
    """Lines of numbers."""

    def line(self, subject: int, when: datetime) -> Number:
        return Number(when, "info", "news", subject)

    def text(self, subject: int, clock: str, *, colours: bool) -> str:
        return f"{clock} news {subject}{' coloured' if colours else ''}"


class Alarm:
    """Lines without facts."""

    def line(self, subject: None, when: datetime) -> Bare:
        return Bare(when, "warning", "alarm")

    def text(self, subject: None, clock: str, *, colours: bool) -> str:
        return f"{clock} alarm"


async def test_lines_that_come_by_the_thousand_are_written_together() -> None:
    stream = io.StringIO()
    configure("warning", "json", stream)
    journal = LogBuffer()
    journal.tell("info", News(), 0)
    journal.tell("warning", Alarm(), None)
    assert stream.getvalue() == ""
    journal.flush()
    [line] = lines(stream)
    assert list(line) == ["time", "level", "event"]
    datetime.fromisoformat(str(line["time"]))
    configure("info", "json", stream)
    journal.tell("info", News(), 1)
    journal.flush()
    assert list(lines(stream)[1]) == ["time", "level", "event", "number"]
    configure("info", "console", stream)
    journal.tell("info", News(), 2)
    journal.tell("warning", Alarm(), None)
    journal.flush()
    assert [line[8:] for line in stream.getvalue().splitlines()[2:]] == [" news 2", " alarm"]
    terminal = Terminal()
    configure("info", "auto", terminal)
    journal.tell("info", News(), 3)
    journal.flush()
    assert terminal.getvalue().endswith(" news 3 coloured\n")


async def test_no_more_lines_are_kept_than_are_soon_written() -> None:
    stream = io.StringIO()
    configure("info", "json", stream)
    journal = LogBuffer()
    for number in range(300):
        journal.tell("info", News(), number)
    assert [line["number"] for line in lines(stream)] == list(range(256))
    journal.flush()
    assert len(lines(stream)) == 300


def test_lines_follow_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "json")
    with contextlib.redirect_stderr(io.StringIO()) as elsewhere:
        structlog.get_logger().info("there")
    structlog.get_logger().info("here")
    assert '"event":"there"' in elsewhere.getvalue()
    assert '"event":"here"' in capsys.readouterr().err
    assert '"event":"here"' not in elsewhere.getvalue()


async def test_lines_do_not_wait_for_others() -> None:
    class Written(io.StringIO):
        def flush(self) -> None:
            written.set()

    written = asyncio.Event()
    stream = Written()
    configure("info", "json", stream)
    LogBuffer().tell("info", News(), 1)
    await asyncio.wait_for(written.wait(), 60)
    assert [line["event"] for line in lines(stream)] == ["news"]
