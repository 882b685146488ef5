"""The documents of a reply while it is read, and what in them breaks a rule that no grammar has.

Reads with a parser of its own, so that what is taken back was never read by the one that answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from causerie.chat.document_watch import DocumentWatch, Fault
from causerie.chat.parser import Mode, Parser
from causerie.protocol.events import ContentEvent, ReasoningDelta, TextDelta, ToolCallStarted

Rules = Mapping[str, object]


class WatchedDocuments:
    """The answer, or the arguments of calls, of one reply.

    ``answer`` and ``functions`` are the rewritten schemas, ``resumed`` is the beginning of the
    answer that the prompt has, and ``texts`` were read before the tokens that are counted here.
    """

    def __init__(
        self,
        parser: Parser,
        answer: Rules | None,
        functions: Mapping[str, Rules],
        *,
        resumed: str = "",
        texts: Sequence[str] = (),
    ) -> None:
        self._parser = parser
        self._functions = functions
        self._document = DocumentWatch(answer) if answer is not None else None
        self._read = 0  # tokens
        self._told = 0  # tokens up to the last one that the parser made something of
        self.final = 0
        """Tokens that nothing will take back."""
        self.content: list[int] = []
        """Positions of the tokens that have a part of a value, and not only structure."""
        if self._document is not None:
            self._document.feed(resumed, -1)
        for text in texts:
            self._feed(parser.feed(text), -1)

    @property
    def fault(self) -> Fault | None:
        """The item or value that breaks a rule, once it is complete."""
        return self._document.fault if self._document is not None else None

    def feed(self, text: str) -> None:
        """Read the text of the next token."""
        events = self._parser.feed(text)
        if self._feed(events, max(self._told, self.final)):
            self.content.append(self._read)
        self._read += 1
        if events:
            self._told = self._read
        held = self._document.held_from if self._document is not None else None
        known = self._told if self._withholds else self._read
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
