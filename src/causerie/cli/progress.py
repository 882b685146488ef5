"""Progress on the terminal: rate and time left while something is fetched.

Writes to stderr. Without a terminal, it is one line at the start and one at the end, so that logs
stay readable.
"""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class DownloadBar:
    """Shows one download after another; ``quiet`` shows nothing at all."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        self._task: TaskID | None = None
        self._label = ""
        self._bytes = 0
        self._began = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def active(self) -> bool:
        """Return true while a bar is on the terminal."""
        return self._task is not None

    def stop(self) -> None:
        """Take the bar away, complete or not."""
        self._bar.stop()
        self._task = None

    def started(self, total: int | None, label: str) -> None:
        """A file begins; ``total`` is in bytes, where it is known."""
        self._label, self._bytes, self._began = label, 0, time.monotonic()
        if self._bar.disable:
            size = f" ({total / 1e6:.0f} MB)" if total else ""
            self._say(f"{label}{size}")
            return
        self._bar.start()
        self._task = self._bar.add_task(label, total=total)

    def advanced(self, count: int) -> None:
        """``count`` more bytes are here."""
        self._bytes += count
        if self._task is not None:
            self._bar.advance(self._task, count)

    def finished(self) -> None:
        if self._task is not None:
            self._bar.stop()
            self._task = None
            return
        seconds = max(time.monotonic() - self._began, 1e-3)
        rate = self._bytes / 1e6 / seconds
        self._say(f"{self._label}: {self._bytes / 1e6:.0f} MB at {rate:.1f} MB/s")

    def _say(self, line: str) -> None:
        if not self._quiet:
            self._console.print(line, markup=False, highlight=False)
