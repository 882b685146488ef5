"""Knowledge about the probed model, which grows with each question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from causerie.probe.ask import ProbeRequest, chat

Thinking = Literal["switch", "always", "never"]
Messages = Sequence[Mapping[str, object]]


def user(text: str) -> dict[str, object]:
    return {"role": "user", "content": text}


@dataclass(frozen=True, slots=True)
class Subject:
    """One model at one provider."""

    base_url: str
    model: str
    keyed: bool = False
    entry: object = None
    """Its entry in the list of models."""
    limit: str = "max_tokens"
    """Name of the output limit that it takes."""
    steady: Mapping[str, object] = field(default_factory=lambda: {"temperature": 0})
    """Fields that make it repeat itself."""
    quiet: Mapping[str, object] = field(default_factory=dict)
    """Fields that keep it from thinking."""
    loud: Mapping[str, object] | None = None
    """Fields that make it think; ``None``: nothing does."""
    room: int = 0
    """Tokens that a reply needs in addition to its text, if it cannot be kept from thinking."""
    thinking: Thinking | None = None
    context_length: int | None = None
    continues: bool | None = None

    def ask(self, said: str | Messages, most: int, /, **fields: object) -> ProbeRequest:
        """Return a completion of at most ``most`` tokens of text, as steady and quiet as can be.

        A field given as ``None`` is left out.
        """
        messages = [user(said)] if isinstance(said, str) else said
        usual = {**self.steady, **self.quiet, self.limit: most + self.room}
        body: dict[str, object] = {"model": self.model, "messages": messages, **fields}
        body |= {name: value for name, value in usual.items() if name not in fields}
        return chat({name: value for name, value in body.items() if value is not None})

    def loudly(self, said: str | Messages, most: int, /, **fields: object) -> ProbeRequest:
        """Return the same with thinking on; ``most`` counts the thinking too."""
        on = {**dict.fromkeys(self.quiet), **(self.loud or {})}
        return self.ask(said, most, **{**on, **fields})
