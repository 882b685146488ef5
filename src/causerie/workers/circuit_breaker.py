"""Circuit breaker whose state is in shared memory, so that all processes see one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from causerie.runtime.circuit_breaker import CircuitBreaker
from causerie.workers.layout import BREAKER_WORDS
from causerie.workers.shared_memory import SharedMemory

_REASON = 10  # the first word of the text
_REASON_BYTES = 8 * (BREAKER_WORDS - _REASON)

T = TypeVar("T", bound=float)


class _Word(Generic[T]):
    """An attribute that is a word of the memory; ``kind`` makes the value of the number there."""

    def __init__(self, kind: Callable[[float], T], word: int) -> None:
        self._kind = kind
        self._word = word

    def __get__(self, breaker: SharedCircuitBreaker, owner: object = None) -> T:
        return self._kind(breaker.words[breaker.at + self._word])

    def __set__(self, breaker: SharedCircuitBreaker, value: T) -> None:
        breaker.words[breaker.at + self._word] = float(value)


class SharedCircuitBreaker(CircuitBreaker):
    """The breaker at a place of the shared memory. ``clock`` is one that all processes share.

    Memory of zeros is a breaker that nothing is held against.
    """

    __slots__ = ("_memory", "at", "words")

    _failures = _Word(int, 0)
    open = _Word(bool, 1)
    _absent = _Word(bool, 2)
    _waits = _Word(int, 4)
    _down_until = _Word(float, 5)
    _full_until = _Word(float, 6)
    _trial_until = _Word(float, 7)
    _rejections = _Word(int, 8)
    _rejected_until = _Word(float, 9)

    def __init__(
        self,
        memory: SharedMemory,
        at: int,
        clock: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        self._memory = memory
        self.at = at
        self.words = memory.seconds
        self.clock = clock
        self._chance = chance

    @property
    def well(self) -> bool:
        """Nothing is held against it."""
        return not self.words[self.at + 3]  # asked several times a request, so without a detour

    @well.setter
    def well(self, value: bool) -> None:
        self.words[self.at + 3] = float(not value)

    @property
    def reason(self) -> str:
        """Why it was opened or is full, in a code."""
        start = self.at + _REASON
        end = self.at + BREAKER_WORDS
        return bytes(self._memory.numbers[start:end].cast("B")).rstrip(b"\0").decode()

    @reason.setter
    def reason(self, code: str) -> None:
        start = self.at + _REASON
        text = code.encode("ascii", "replace")[:_REASON_BYTES].ljust(_REASON_BYTES, b"\0")
        self._memory.numbers[start : self.at + BREAKER_WORDS] = memoryview(text).cast("q")

    def reset(self) -> None:
        """Hold nothing against the target any more."""
        with self._memory:
            self._memory.clear(self.at, self.at + BREAKER_WORDS)

    def begin(self) -> bool:
        """As in the base; of all processes one request finds out."""
        with self._memory:
            return super().begin()

    def answers(self) -> None:
        """As in the base."""
        if not self.well:
            with self._memory:
                super().answers()

    def succeeded(self) -> None:
        """As in the base."""
        if not self.well:
            with self._memory:
                super().succeeded()

    def refuses(self) -> None:
        """As in the base."""
        if not self.well:
            with self._memory:
                super().refuses()

    def rejects(self, reason: str) -> None:
        """As in the base."""
        with self._memory:
            super().rejects(reason)

    def failed(self, reason: str, *, proven: bool = True) -> None:
        """As in the base."""
        with self._memory:
            super().failed(reason, proven=proven)

    def full(self, seconds: float, reason: str) -> None:
        """As in the base."""
        with self._memory:
            super().full(seconds, reason)

    def told_down(self, seconds: float, reason: str) -> None:
        """As in the base."""
        with self._memory:
            super().told_down(seconds, reason)
