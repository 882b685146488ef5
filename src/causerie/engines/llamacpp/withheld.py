"""Tokens that the engine's stream leaves out, found again.

While its text ends in the middle of a character the engine sends nothing, and then only the last
token with the whole character. Their bytes show which tokens came before: they spell the part of
the text that is not the last token's. Knows the vocabulary and nothing of the wire.
"""

from __future__ import annotations

from collections.abc import Mapping

from causerie.engines.weights.vocabulary import TokenTable


class PartialTokens:
    """The tokens of a vocabulary that hold parts of characters."""

    def __init__(self, vocabulary: TokenTable) -> None:
        self._tokens = vocabulary.tokens
        self._ids: Mapping[bytes, int] = {
            token: id for id, token in enumerate(vocabulary.tokens) if _is_partial(token)
        }

    def before(self, text: str, last: int, count: int) -> tuple[int, ...]:
        """Return the ids of the tokens left out before ``last``, which completed ``text``.

        ``count`` is how many there were. If so many cannot be found it is as few as spell the
        missing bytes; where none do (the model wrote invalid UTF-8), nothing.
        """
        if text.isascii() or not 0 <= last < len(self._tokens):
            return ()
        end = self._tokens[last]
        written = text.encode()
        if len(end) >= len(written) or not written.endswith(end):
            return ()
        head = written[: -len(end)] if end else written
        for number in (count, *range(1, len(head) + 1)):
            found = self._spelled(head, number)
            if found:
                return found
        return ()

    def _spelled(self, head: bytes, count: int) -> tuple[int, ...]:
        """``count`` tokens, longest first, whose bytes are ``head``; empty where there are none."""
        if count == 1:
            return (self._ids[head],) if head in self._ids else ()
        for cut in range(len(head) - count + 1, 0, -1):
            first = self._ids.get(head[:cut])
            rest = self._spelled(head[cut:], count - 1) if first is not None else ()
            if first is not None and rest:
                return (first, *rest)
        return ()


def _is_partial(token: bytes) -> bool:
    try:
        token.decode()
    except UnicodeDecodeError:
        return True
    return False
