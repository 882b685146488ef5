"""Chunks that differ from the one before in their text alone, as most of a stream do.

All other bytes of such a chunk are known, so it says what the one before said, with another text:
one string is decoded where that took a whole document.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from causerie.protocol.bounded_json import SMALL
from causerie.protocol.events import ContentEvent
from causerie.providers.answer import AnswerStart
from causerie.providers.wire import ProviderDelta

_decode = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


class ChunkForm(Struct, frozen=True, gc=False):
    """The bytes before and behind the text, and the choice that the text is of."""

    before: bytes
    behind: bytes
    answer: AnswerStart
    reasoning: bool

    @classmethod
    def of(cls, data: bytes, delta: ProviderDelta, answer: AnswerStart) -> ChunkForm | None:
        """The form of a chunk, whose only text ``delta`` has; ``None`` where it cannot be told."""
        if delta.content:
            name = b'"content"'
        else:
            name = b'"reasoning_content"' if delta.reasoning_content else b'"reasoning"'
        quoted = _encode(delta.content or delta.reasoning_content or delta.reasoning)
        if data.count(name) != 1 or len(data) > SMALL:
            return None
        start = data.find(b'"', data.find(name) + len(name))
        if not data.startswith(quoted, start):  # it is written in another way
            return None
        return cls(data[:start], data[start + len(quoted) :], answer, not delta.content)

    def event(self, data: bytes) -> ContentEvent | None:
        """The event of a chunk of this form; ``None``, and nothing is counted, of another one."""
        before, behind = self.before, self.behind
        if not (data.startswith(before) and data.endswith(behind)):
            return None
        try:
            text = _decode(data[len(before) : len(data) - len(behind)])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return self.answer.more(text, reasoning=self.reasoning) if text else None
