"""Recognize the repetition of an earlier text, however both are cut into pieces."""

from __future__ import annotations


class Echo:
    """Compares new pieces with an earlier text; white space does not count.

    ``over``: the comparison has ended. ``repeated``: its result.
    """

    __slots__ = ("_at", "_held", "_text", "over", "repeated")

    def __init__(self, text: str) -> None:
        self._text = _squeezed(text)
        self._at = 0
        self._held: list[str] = []
        self.over = not self._text
        self.repeated = False

    def feed(self, text: str) -> str:
        """Return the new text: none while undecided, then all that does not repeat the other."""
        if self.over:
            return text
        squeezed, left = _squeezed(text), len(self._text) - self._at
        if not self._text.startswith(squeezed[:left], self._at):
            return self.end() + text
        self._held.append(text)
        self._at += min(len(squeezed), left)
        if self._at < len(self._text):
            return ""
        self.over = self.repeated = True
        self._held.clear()
        return _behind(text, left).lstrip()

    def end(self) -> str:
        """End the comparison; return the text that was held back."""
        self.over = True
        held = "".join(self._held)
        self._held.clear()
        return held


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _behind(text: str, count: int) -> str:
    """Return what follows so many characters that are no white space."""
    for at, character in enumerate(text):
        if not count:
            return text[at:]
        count -= not character.isspace()
    return ""
