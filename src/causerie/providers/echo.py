"""The repetition of a text that was said before, told from new text however both are cut."""

from __future__ import annotations


class Echo:
    """Compares what comes with one text; white space does not count.

    ``over``: it is known whether the text is ``repeated``.
    """

    __slots__ = ("_at", "_held", "_text", "over", "repeated")

    def __init__(self, text: str) -> None:
        self._text = _squeezed(text)
        self._at = 0
        self._held: list[str] = []
        self.over = not self._text
        self.repeated = False

    def feed(self, text: str) -> str:
        """Return what is new: nothing yet, what follows the repetition, or all if it is none."""
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
        """Return what was held because it might have been a repetition."""
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
