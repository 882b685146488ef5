"""Models of this service that compute on the same cores at the same time.

Their threads spin for a shorter time then (:mod:`.spins`). Alongside other programs long spins are
better (`docs/internals/decisions`, 0102 and 0115).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from causerie.engines.machine_part import cores

Tell = Callable[[bool], None]
"""Has the threads of a process spin shortly, or not."""


@dataclass(slots=True, eq=False)
class CoreUser:
    """A model with so many ``threads``, and its process, if that can be told how long to spin."""

    threads: int
    _tell: Tell | None = None
    _told: bool = False  # what the process heard last

    def is_now(self, tell: Tell) -> None:
        """Have another process, whose threads spin for long."""
        self._tell, self._told = tell, False

    def spin(self, *, shortly: bool) -> None:
        """Tell the process, unless it knows."""
        if self._tell is not None and shortly != self._told:
            self._told = shortly
            self._tell(shortly)


class CoreSharing:
    """The models that compute now."""

    def __init__(self) -> None:
        self._computing: list[CoreUser] = []

    def begin(self, user: CoreUser) -> None:
        """Note that a model computes."""
        self._computing.append(user)
        self._tell()

    def end(self, user: CoreUser) -> None:
        """Note that it computes no more."""
        self._computing.remove(user)
        self._tell()

    @cached_property
    def _cores(self) -> int:
        return cores()

    def _tell(self) -> None:
        several = len(self._computing) > 1
        shortly = several and sum(user.threads for user in self._computing) > self._cores
        for user in self._computing:
            user.spin(shortly=shortly)
