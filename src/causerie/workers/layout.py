"""Places in the shared memory, by the names of what is counted there.

Only the parent gives out places; workers learn them with each configuration. A place is never
given to another name, so counts go on when a configuration comes back.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from causerie.workers.shared_memory import MEMBERS

MINUTE = 600
"""Ticks of a tenth of a second."""
WINDOW_WORDS = 8 + MEMBERS + 3 * MINUTE
BREAKER_WORDS = 18
SLOTS_WORDS = MEMBERS
TARGET_WORDS = BREAKER_WORDS + SLOTS_WORDS
_MOST_WINDOWS = 1024
_MOST_TARGETS = 4096
_MOST_PROVIDERS = 1024

_WINDOWS_AT = 0
_TARGETS_AT = _WINDOWS_AT + _MOST_WINDOWS * WINDOW_WORDS
_SLOTS_AT = _TARGETS_AT + _MOST_TARGETS * TARGET_WORDS
WORDS = _SLOTS_AT + _MOST_PROVIDERS * SLOTS_WORDS
"""Of the whole memory; what is not used takes no memory of the machine."""


class Places(Struct):
    """The first word of what is counted for each name: rate scopes, targets, providers."""

    windows: dict[str, int] = field(default_factory=dict)
    targets: dict[str, int] = field(default_factory=dict)
    slots: dict[str, int] = field(default_factory=dict)

    def extended(
        self, scopes: Iterable[str], targets: Iterable[str], providers: Iterable[str]
    ) -> Places:
        """Return the places of these names too; raise :class:`ValueError` if there are too many."""
        return Places(
            _extended(self.windows, scopes, _WINDOWS_AT, WINDOW_WORDS, _MOST_WINDOWS),
            _extended(self.targets, targets, _TARGETS_AT, TARGET_WORDS, _MOST_TARGETS),
            _extended(self.slots, providers, _SLOTS_AT, SLOTS_WORDS, _MOST_PROVIDERS),
        )


def _extended(
    known: dict[str, int], names: Iterable[str], start: int, words: int, most: int
) -> dict[str, int]:
    places = dict(known)
    for name in names:
        if name not in places:
            if len(places) >= most:
                raise ValueError(f"worker processes count at most {most} of these together")
            places[name] = start + len(places) * words
    return places
