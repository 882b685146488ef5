"""A vocabulary, read once, and what follows from it alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from causerie.engines.weights.vocabulary import TokenTable


@dataclass(frozen=True, slots=True)
class IndexedVocabulary:
    """A ``vocabulary``, the bytes of its ``longest`` token, and a ``digest`` of its contents."""

    vocabulary: TokenTable
    longest: int
    digest: str

    @staticmethod
    def of(vocabulary: TokenTable) -> IndexedVocabulary:
        """Return the index of the vocabulary; takes some ten milliseconds."""
        digest = hashlib.blake2b(bytes(vocabulary.types), digest_size=8)
        for token in vocabulary.tokens:
            digest.update(len(token).to_bytes(4, "big") + token)
        longest = max(map(len, vocabulary.tokens), default=1)
        return IndexedVocabulary(vocabulary, longest, digest.hexdigest())

    def text(self, id: int | None) -> str:
        """Return the text of a token; empty if there is no such token."""
        if id is None or not 0 <= id < len(self.vocabulary.tokens):
            return ""
        return self.vocabulary.tokens[id].decode("utf-8", "replace")

    def least(self, pieces: Sequence[str | int]) -> int:
        """Return the fewest tokens that the texts among the pieces can be."""
        return characters(pieces) // self.longest


def characters(pieces: Sequence[str | int]) -> int:
    """Return the total length of the texts among the pieces, in characters."""
    return sum(len(piece) for piece in pieces if isinstance(piece, str))
