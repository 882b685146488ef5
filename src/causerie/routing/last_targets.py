"""The target that answered a conversation last: its prompt cache has the beginning.

Hashing alone sends a conversation back to the target of its own that was full or away for a while,
and that has nothing of it. Each process remembers its own conversations: at most so many, the one
answered longest ago goes first, and none for longer than prompt caches of providers live.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b

_MOST = 20_000  # conversations, of some 200 bytes each
_SECONDS = 600.0


class LastTargets:
    """Names of targets by conversation; ``now`` is in seconds of any clock."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._known: OrderedDict[bytes, tuple[str, float]] = OrderedDict()

    def note(self, conversation: str, target: str, now: float) -> None:
        """Remember that this target answered the conversation."""
        key = _digest(conversation)
        self._known[key] = target, now
        self._known.move_to_end(key)
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def of(self, conversation: str, now: float) -> str:
        """Return the name of the target; empty if nobody answered it lately."""
        target, noted = self._known.get(_digest(conversation), ("", now))
        return target if now - noted <= _SECONDS else ""


def _digest(conversation: str) -> bytes:
    return blake2b(conversation.encode("utf-8", "surrogatepass"), digest_size=16).digest()
