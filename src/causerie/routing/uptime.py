"""The share of requests that a target answered, of the last few minutes, half hour and day."""

from __future__ import annotations

from collections import deque

from causerie.routing.history import Minute

_LENGTHS = (5, 30, 1440)  # minutes


class _Window:
    """The sums of the minutes of one length of time. Each minute is added and taken out once."""

    __slots__ = ("_answered", "_failed", "_length", "_minutes")

    def __init__(self, length: int) -> None:
        self._length = length
        self._minutes: deque[Minute] = deque()
        self._answered = self._failed = 0

    def add(self, minute: Minute) -> None:
        self._minutes.append(minute)
        self._answered += minute.answered
        self._failed += minute.failed
        self._drop(minute.number)

    def share(self, now: float, current: Minute) -> float | None:
        """Return the share of answered requests, or ``None`` without requests."""
        self._drop(now)
        lately = current.number > now - self._length
        answered = self._answered + (current.answered if lately else 0)
        failed = self._failed + (current.failed if lately else 0)
        return answered / (answered + failed) if answered + failed else None

    def _drop(self, now: float) -> None:
        """Take out minutes that are too old at the minute with this number."""
        minutes, since = self._minutes, now - self._length
        while minutes and minutes[0].number <= since:
            old = minutes.popleft()
            self._answered -= old.answered
            self._failed -= old.failed


class Uptime:
    """Of one target. Minutes have numbers that never fall."""

    __slots__ = ("_current", "_windows")

    def __init__(self) -> None:
        self._current = Minute(0)
        self._windows = {length: _Window(length) for length in _LENGTHS}

    def begin(self, minute: Minute) -> None:
        """Count this minute from now on: it goes on to change until the next begins."""
        for window in self._windows.values():
            window.add(self._current)
        self._current = minute

    def share(self, minutes: int, now: float) -> float | None:
        """Return the share of the last so many minutes, at the minute with the number ``now``."""
        return self._windows[minutes].share(now, self._current)
