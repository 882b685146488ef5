"""Write replies that pass through: the provider's JSON under the name that the client asked for."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

from causerie.errors import ErrorDetails
from causerie.protocol import sse
from causerie.protocol.events import Batch, Event, PassedBytes, TextDelta, Usage
from causerie.protocol.operations import members
from causerie.protocol.response import ResponseContext

_encode = msgspec.json.Encoder().encode
_PRICES = frozenset({"cost", "cost_details", "is_byok"})  # what the provider charges us
_IDENTITY = ("id", "object", "created", "model")


class PassedReply(Struct, frozen=True):
    """How a reply looks; a stream ends with its ``usage`` if the client asked for that."""

    usage: bool = False

    def completion(self, context: ResponseContext, events: Sequence[Event]) -> object:
        """Return the provider's JSON with our model and price; without it the text and usage."""
        usage = next((event for event in events if isinstance(event, Usage)), Usage(0, 0))
        raw = next((event.data for event in events if isinstance(event, PassedBytes)), None)
        if raw is None:
            text = "".join([event.text for event in events if isinstance(event, TextDelta)])
            shown = {"usage": _usage(None, context, usage)}
            return {"choices": [{"text": text}], **shown} if text else shown
        if raw.lstrip()[:1] == b"[":
            return Raw(raw)
        fields = _named(raw, context)
        if "usage" in fields or "results" not in fields:
            fields["usage"] = _usage(fields.get("usage"), context, usage)
        return fields

    def encoder(self, context: ResponseContext) -> PassedEncoder:
        return PassedEncoder(context, self.usage)


def _named(raw: bytes, context: ResponseContext) -> dict[str, Raw]:
    fields = members(raw)
    if "model" in fields:
        fields["model"] = Raw(_encode(context.model))
    return fields


def _usage(told: Raw | None, context: ResponseContext, usage: Usage) -> Raw:
    found: object = None if told is None else msgspec.json.decode(told)
    if not isinstance(found, dict):
        found = {"prompt_tokens": usage.prompt, "total_tokens": usage.prompt + usage.completion}
        if usage.completion:
            found["completion_tokens"] = usage.completion
    kept = {name: value for name, value in found.items() if name not in _PRICES}
    if context.cost is not None:
        kept["cost"] = context.cost(usage)
    return Raw(_encode(kept))


class PassedEncoder(Struct, eq=False):
    """Encodes the chunks of a stream of plain completions."""

    _context: ResponseContext
    _usage: bool
    _identity: dict[str, Raw] = {}  # what all chunks have in common

    def feed(self, batch: Batch) -> bytes:
        pieces: list[bytes] = []
        for event in batch:
            if isinstance(event, PassedBytes):
                fields = _named(event.data, self._context)
                fields.pop("usage", None)
                self._identity = {name: fields[name] for name in _IDENTITY if name in fields}
                # Line breaks stand between members of the provider's JSON only, never in strings.
                line = _encode(fields).replace(b"\n", b" ").replace(b"\r", b" ")
                pieces.append(sse.encode(line))
            elif isinstance(event, Usage) and self._usage:
                usage = _usage(None, self._context, event)
                pieces.append(
                    sse.encode(_encode({**self._identity, "choices": [], "usage": usage}))
                )
        return b"".join(pieces)

    def broken(self, error: ErrorDetails) -> bytes:
        return sse.encode(_encode({**self._identity, "choices": [], "error": error}))

    def end(self) -> bytes:
        return sse.DONE
