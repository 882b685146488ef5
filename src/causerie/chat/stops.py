"""Stop strings in the answer, also across the borders of tokens."""

from __future__ import annotations

from collections.abc import Sequence

from causerie.chat.call_syntax.base import text_overlap


class StopStrings:
    """Passes text on until one of ``texts`` appears; the stop string itself is not passed."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = tuple(texts)
        self._held = ""
        self.met = False

    def feed(self, text: str) -> str:
        """Return the part of the text that can no longer belong to a stop string."""
        text = self._held + text
        found = [at for at in (text.find(stop) for stop in self._texts) if at >= 0]
        if found:
            self.met = True
            self._held = ""
            return text[: min(found)]
        keep = max((text_overlap(text, stop) for stop in self._texts), default=0)
        self._held = text[len(text) - keep :] if keep else ""
        return text[: len(text) - keep]

    def finish(self) -> str:
        """Return the held-back text at the end of the text."""
        held, self._held = self._held, ""
        return held
