"""All that the processes of a service keep together, as one of them sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from causerie.access.limits import RateLimiter
from causerie.providers.request_slots import RequestSlots
from causerie.routing.reported_stats import ReportedLatencyStats
from causerie.routing.target import AdmissionQueue, Target
from causerie.workers.circuit_breaker import SharedCircuitBreaker
from causerie.workers.counters import ParentCounters, SharedCounters
from causerie.workers.layout import BREAKER_WORDS, WORDS, Places
from causerie.workers.request_slots import SharedRequestSlots, forget
from causerie.workers.shared_memory import SharedMemory
from causerie.workers.target_state import SharedTargetState

PARENT = 0


class SharedState:
    """Counters, targets and slots in the memory, for the process ``member``."""

    def __init__(self, memory: SharedMemory, member: int) -> None:
        self.memory = memory
        self.member = member
        self.places = Places()
        self._shared = SharedCounters(memory, member, self.places.windows)
        self.counters: RateLimiter = self._shared
        if member == PARENT:
            self.counters = ParentCounters(self._shared)

    @classmethod
    def create(cls) -> SharedState:
        """Make the memory; the caller is the parent."""
        return cls(SharedMemory.create(WORDS), PARENT)

    @classmethod
    def opened(cls, descriptor: int, member: int) -> SharedState:
        """Open the memory of another process."""
        return cls(SharedMemory(descriptor, WORDS), member)

    def extended(
        self, scopes: Iterable[str], targets: Iterable[str], providers: Iterable[str]
    ) -> Places:
        """Return the places with those of more names; raise :class:`ValueError` for too many."""
        return self.places.extended(scopes, targets, providers)

    def use(self, places: Places) -> None:
        """Count at these places from now on."""
        self.places = places
        self._shared.places = places.windows

    def begin_target(
        self,
        name: str,
        target: Target,
        admission_queue: AdmissionQueue | None,
        clock: Callable[[], float],
        chance: Callable[[], float],
    ) -> SharedTargetState:
        """Make the state of a target; of one that is new or has changed the parent resets it."""
        at = self.places.targets[name]
        breaker = SharedCircuitBreaker(self.memory, at, clock, chance)
        if self.member == PARENT:
            breaker.reset()
        stats = ReportedLatencyStats(clock)
        requests = SharedRequestSlots(self.memory, at + BREAKER_WORDS, self.member, None)
        return SharedTargetState(name, target, admission_queue, breaker, requests, stats)

    def request_slots(self, provider: str, most: int | None) -> RequestSlots:
        """Return the slots of a provider, of which there are ``most``."""
        if most is None:
            return RequestSlots(None)
        return SharedRequestSlots(self.memory, self.places.slots[provider], self.member, most)

    def forget(self, member: int) -> None:
        """Take back what a process that has ended had under way."""
        self._shared.forget(member)
        forget(self.memory, self.places.slots.values(), member)
        targets = [at + BREAKER_WORDS for at in self.places.targets.values()]
        forget(self.memory, targets, member)
