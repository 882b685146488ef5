"""The documents of a reply while it is read, and what in them breaks a rule that no grammar has.

Reads with a parser of its own, so that what is taken back was never read by the one that answers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from causerie.chat.document_watch import DocumentWatch, Fault
from causerie.chat.growing_text import GrowingList
from causerie.chat.parser import Mode, Parser
from causerie.chat.validation import CheckedSchema
from causerie.protocol.events import ContentEvent, ReasoningDelta, TextDelta, ToolCallStarted

_PIECE = 4096  # characters
_TOKENS_A_COPY = 64


class WatchedDocuments:
    """The answer, or the arguments of calls, of one reply.

    ``answer`` and ``functions`` are the rewritten schemas, ``resumed`` is the beginning of the
    answer that the prompt has, and ``texts`` came before the tokens that are counted here; see
    :meth:`read_before`.
    """

    def __init__(
        self,
        parser: Parser,
        answer: CheckedSchema | None,
        functions: Mapping[str, CheckedSchema],
        *,
        resumed: str = "",
        texts: Sequence[str] = (),
    ) -> None:
        self._parser = parser
        self._functions = functions
        self._document = DocumentWatch(answer) if answer is not None else None
        self.read = 0
        """Tokens that have been read."""
        self._told = 0  # tokens up to the last one that the parser made something of
        self.final = 0
        """Tokens that nothing will take back."""
        # Positions of the tokens that have a part of a value, and not only structure.
        self._content = GrowingList[int]()
        self._resumed, self._texts = resumed, texts

    def read_before(self) -> Iterator[None]:
        """Read what came before, piece by piece."""
        for at in range(0, len(self._resumed), _PIECE):
            if self._document is not None:
                self._document.feed(self._resumed[at : at + _PIECE], -1)
            yield
        for text in self._texts:
            self._feed(self._parser.feed(text), -1)
            yield
        self._resumed, self._texts = "", ()

    @property
    def cost_of_copy(self) -> int:
        """Return about how many tokens could be read in the time that a copy takes."""
        held = self._document.depth if self._document is not None else 0
        return _TOKENS_A_COPY + held + self._parser.unmarked_pieces

    def content_behind(self, token: int) -> list[int]:
        """Return the positions from that of a token on that have a part of a value."""
        content = self._content.behind(0)
        return content[bisect_left(content, token) :]

    @property
    def is_behind(self) -> bool:
        """Return whether a value has been read that is still to be checked."""
        return self._document is not None and self._document.is_behind

    def catch_up(self) -> None:
        """Do the checks that took too long while the text was read. They may take a second."""
        if self._document is not None:
            self._document.catch_up()

    @property
    def fault(self) -> Fault | None:
        """The item or value that breaks a rule, once it is complete."""
        return self._document.fault if self._document is not None else None

    def feed(self, text: str) -> None:
        """Read the text of the next token."""
        events = self._parser.feed(text)
        if self._feed(events, max(self._told, self.final)):
            self._content.append(self.read)
        self.read += 1
        if events:
            self._told = self.read
        held = self._document.held_from if self._document is not None else None
        known = self._told if self._withholds else self.read
        self.final = max(self.final, known if held is None else min(held, known))

    @property
    def _withholds(self) -> bool:
        """Return true if text that made no event yet may still be a part of a document."""
        parser = self._parser
        answers = self._document is not None and parser.mode is not Mode.CALLS
        return not parser.repeated and (parser.call_open or answers)

    def _feed(self, events: Sequence[ContentEvent], position: int) -> bool:
        """Read what came; return whether it has a part of a value."""
        found = False
        for event in events:
            if isinstance(event, ToolCallStarted):
                rules = self._functions.get(event.name)
                self._document = DocumentWatch(rules) if rules is not None else None
                continue
            document = self._document
            if document is None or isinstance(event, ReasoningDelta):
                continue
            before = document.content
            said = event.text if isinstance(event, TextDelta) else event.arguments
            document.feed(said, position)
            found = found or document.content > before
        return found
