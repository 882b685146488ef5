"""A healthy reply as a script: what is thought, said and called, in pieces; one piece, one token.

Knows the JSON of chat completions, and nothing of connections.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

TEXT = "Il était une fois un renard près d’une rivière, et la rivière était 深い."


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function; ``arguments`` is JSON text."""

    name: str
    arguments: str = "{}"
    id: str = "call_upstream_1"


@dataclass(frozen=True, slots=True)
class Reply:
    """``piece`` is the size of a piece in characters, ``pause`` the seconds between pieces."""

    text: str = TEXT
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    prompt_tokens: int = 11
    cached_tokens: int = 0
    piece: int = 5
    pause: float = 0.0
    finish: str = ""

    def after(self, reasoning: str, text: str) -> Reply:
        """Return the rest after that; raise :class:`ValueError` if this reply did not begin so."""
        if not self.text.startswith(text) or not self.reasoning.startswith(reasoning):
            raise ValueError(f"not how the reply begins: {reasoning!r}, {text!r}")
        thought = self.reasoning[len(reasoning) :] if not text else ""
        return replace(self, reasoning=thought, text=self.text[len(text) :])

    def deltas(self) -> list[dict[str, Any]]:
        """The deltas with content."""
        found: list[dict[str, Any]] = [
            {"reasoning_content": piece} for piece in self._pieces(self.reasoning)
        ]
        found += [{"content": piece} for piece in self._pieces(self.text)]
        for index, call in enumerate(self.calls):
            function = {"name": call.name, "arguments": ""}
            begun = {"index": index, "id": call.id, "type": "function", "function": function}
            found.append({"tool_calls": [begun]})
            for piece in self._pieces(call.arguments):
                more = {"index": index, "function": {"arguments": piece}}
                found.append({"tool_calls": [more]})
        return found

    def within(self, limit: int | None) -> Reply:
        """Cut to that many tokens."""
        if limit is None or limit >= len(self.deltas()):
            return self
        thought = self.reasoning[: limit * self.piece]
        rest = limit - len(self._pieces(thought))
        text = self.text[: rest * self.piece]
        return replace(self, reasoning=thought, text=text, calls=(), finish="length")

    @property
    def finish_reason(self) -> str:
        """As given, or as it follows from what is there."""
        return self.finish or ("tool_calls" if self.calls else "stop")

    def usage(self) -> dict[str, Any]:
        """The tokens."""
        completion = len(self.deltas())
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self.prompt_tokens + completion,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": len(self._pieces(self.reasoning))},
        }

    def message(self) -> dict[str, Any]:
        """The whole of it."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text or None}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self.calls
            ]
        return message

    def _pieces(self, text: str) -> list[str]:
        return [text[at : at + self.piece] for at in range(0, len(text), self.piece)]
