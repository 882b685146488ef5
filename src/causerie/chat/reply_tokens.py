"""Tokens of replies as the model made them, for when a reply comes back in the next prompt.

A tokenizer often reads a text otherwise than a model writes it, above all under a grammar. The
engine would then compute the reply again from the first token that differs. So a reply that comes
back behind the very same texts, in the same cache scope, has the tokens that the model made.
Nothing else has: the same words in another conversation have the tokenizer's.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PromptEnd:
    """The last segment of a prompt, with which a reply goes on.

    ``before`` is a hash of all segments before it. If two collide, a reply has tokens that the
    same text had in another conversation.
    """

    before: int
    text: str
    ids: Sequence[int]


@dataclass(slots=True)
class ReplyTokens:
    """The segments of replies; at most so many characters, the last used last to go."""

    most: int
    _kept: OrderedDict[tuple[int, str], array[int]] = field(default_factory=OrderedDict)
    _characters: int = 0

    def of(self, segments: Iterable[str], scope: str = "") -> tuple[dict[int, array[int]], int]:
        """Return the tokens of what a model made of a prompt, by position; hash all but the last.

        The positions are those of the segments.
        """
        found: dict[int, array[int]] = {}
        before = following = hash(scope) if scope else 0
        for at, segment in enumerate(segments):
            before, key = following, (following, segment)
            following = hash(key)
            ids = self._kept.get(key)
            if ids is not None:
                found[at] = ids
                self._kept.move_to_end(key)
        return found, before

    def keep(self, before: int, segments: Sequence[str], ids: Sequence[array[int]]) -> None:
        """Keep the tokens of segments that follow each other, the first behind ``before``."""
        for segment, made in zip(segments, ids, strict=True):
            key = (before, segment)
            before = hash(key)
            if key not in self._kept:
                self._characters += len(segment)
            self._kept[key] = made
        while self._characters > self.most:
            (_, oldest), _ = self._kept.popitem(last=False)
            self._characters -= len(oldest)
