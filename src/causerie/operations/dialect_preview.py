"""Requests of a probe as the gateway would send them to this kind of server.

A parameter without effect under our name may have one under the server's own. So a parameter is
asked for as its dialect writes it, and counts if that has effect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from causerie.errors import ServiceError
from causerie.probe.ask import ProbeRequest
from causerie.probe.interview import RequestSender
from causerie.probe.reading import plain
from causerie.probe.reply import ProbeReply
from causerie.protocol.parsing import ParsingRules, parse
from causerie.providers.dialect import Dialect
from causerie.providers.outgoing import outgoing

_RULES = ParsingRules(reasoning_object=True)


@dataclass(frozen=True, slots=True)
class DialectPreview:
    """Sends chat completions in a dialect, anything else as it is."""

    asks: RequestSender
    dialect: Dialect

    async def put(self, ask: ProbeRequest, seconds: float | None = None) -> ProbeReply:
        """The reply; one that the dialect refuses itself is never sent."""
        if ask.path != "/chat/completions" or not ask.body:
            return await self.asks.put(ask, seconds)
        try:
            request = parse(ask.body, _RULES)
            sent = outgoing(request, self.dialect, request.model)
        except ServiceError as error:
            body = msgspec.json.encode(error.body())
            return ProbeReply(error.status, {"content-type": "application/json"}, body)
        reply = await self.asks.put(replace(ask, body=sent.body), seconds)
        return reply if request.stream else plain(reply)
