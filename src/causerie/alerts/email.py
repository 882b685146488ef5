"""A channel that sends a letter to one address."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import structlog

from causerie.alerts.channel import Outcome
from causerie.alerts.message import AlertMessage
from causerie.mail.attempt import attempt
from causerie.mail.outbox import Letter, MailServer
from causerie.mail.sending import in_thread

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Email:
    """A receiver of letters. ``console`` is the address that links in letters begin with."""

    server: MailServer
    to: str = field(repr=False)
    console: str = ""

    async def send(self, message: AlertMessage, now: datetime) -> Outcome:
        """Hand the letter to the server once."""
        del now  # a letter is dated by what sends it
        place = f"{self.server.host}:{self.server.port}"
        send = partial(attempt, self.server, self._letter(message))
        try:
            refusal = await in_thread(send)
        except asyncio.CancelledError:
            log.warning("alert left", message=message.id, reason="the service stops")
            raise
        if refusal is None:
            return Outcome(delivered=True, words=f"{place} took the letter.")
        words = f"{place} rejected the e-mail: {refusal.words}"
        return Outcome(delivered=False, words=words, final=refusal.final)

    def _letter(self, message: AlertMessage) -> Letter:
        lines = [message.title + ("" if message.title.endswith(".") else "."), ""]
        lines += [f"{name.replace('_', ' ')}: {value}" for name, value in message.details.items()]
        lines += ["", f"At {message.at:%Y-%m-%d %H:%M} UTC."]
        if self.console:
            lines.append(f"{self.console}/console/")
        return Letter(self.to, f"[Causerie] {message.title}", "\n".join(lines) + "\n")
