"""Channels of alerts: e-mails, and JSON that is posted to a URL."""

from __future__ import annotations

import asyncio
import html
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from urllib.parse import urlsplit

import msgspec
import structlog

from causerie.http.addresses import IpNetwork
from causerie.http.client import HttpClient, Reach
from causerie.http.client_connection import HttpResponse, TransportFailed
from causerie.observe import mail
from causerie.observe.alerts import Delivery, Outcome, signature

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Email:
    """Sends alerts as e-mails; ``console`` is the address that their links begin with."""

    server: mail.MailServer
    to: str = field(repr=False)
    console: str = ""

    async def send(self, message: Delivery, now: datetime) -> Outcome:
        del now  # a letter is dated by what sends it
        place = f"{self.server.host}:{self.server.port}"
        try:
            await mail.in_thread(partial(mail.send_now, self.server, self._build_letter(message)))
        except asyncio.CancelledError:
            log.warning("alert left", message=message.id, reason="the service stops")
            raise
        except mail.NOT_SENT as failure:
            words = f"{place} rejected the e-mail: {mail.reason(failure)}"
            return Outcome(delivered=False, words=words, final=mail.is_final(failure))
        return Outcome(delivered=True, words=f"{place} took the letter.")

    def _build_letter(self, message: Delivery) -> mail.Letter:
        lines = [message.title + ("" if message.title.endswith(".") else "."), "", *message.facts]
        lines += ["", f"At {message.at:%Y-%m-%d %H:%M} UTC."]
        if self.console:
            lines.append(f"{self.console}/console/")
        return mail.Letter(self.to, f"[Causerie] {message.title}", "\n".join(lines) + "\n")


_ANSWER_BYTES = 2048
_SHOWN = 200  # characters of an answer
_GONE = 410  # the specification: the receiver wants nothing more


@dataclass(frozen=True, slots=True)
class Webhook:
    """Posts alerts as JSON; ``ca_file`` has the certificates to trust, if not the system's.

    Without a ``key`` messages are not signed. ``format`` is a setting of the channel.
    """

    url: str = field(repr=False)  # its path may be what others must not know
    key: bytes | None = field(repr=False)
    format: str = "standard"
    ca_file: str | None = None
    seconds: float = 15.0
    networks: Sequence[IpNetwork] | None = None
    """Networks that may be reached apart from public addresses; ``None``: any address."""

    async def send(self, message: Delivery, now: datetime) -> Outcome:
        parts = urlsplit(self.url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            trust = partial(ssl.create_default_context, cafile=self.ca_file)
            tls = await asyncio.to_thread(trust) if parts.scheme == "https" else None
            reach = Reach(
                tls=tls, connect_seconds=self.seconds, idle_seconds=0, networks=self.networks
            )
            client = HttpClient(f"{parts.scheme}://{parts.netloc}", reach)
        except (OSError, ValueError) as failure:
            return Outcome(delivered=False, words=f"The channel cannot be used: {failure}.")
        body, seconds = _PAYLOADS[self.format](message), int(now.timestamp())
        headers = [
            ("content-type", "application/json"),
            ("user-agent", "causerie"),
            ("webhook-id", message.id),
            ("webhook-timestamp", str(seconds)),
        ]
        if self.key is not None:
            headers.append(("webhook-signature", signature(self.key, message.id, seconds, body)))
        try:
            async with asyncio.timeout(self.seconds):
                response = await client.send("POST", path, headers, body)
                answer = await _read_response_excerpt(response)
        except TransportFailed as failure:
            return Outcome(delivered=False, words=f"It could not be sent: {failure}.")
        except TimeoutError:
            words = f"{client.address.place} did not answer within {self.seconds:g} s."
            return Outcome(delivered=False, words=words)
        finally:
            await client.close()
        return _build_outcome(client.address.place, response.status, answer)


def payload(message: Delivery) -> bytes:
    """Return the JSON body of a standard webhook, with ``type``, ``timestamp`` and ``data``."""
    state = "firing" if message.firing else "resolved"
    return msgspec.json.encode(
        {
            "type": "alert.test" if message.kind == "test" else f"{message.kind}.{state}",
            "timestamp": message.at,
            "data": {"summary": message.title, "state": state, **message.details},
        }
    )


def _encode_slack_body(message: Delivery) -> bytes:
    text = "\n".join([message.title, *message.facts])
    return msgspec.json.encode({"text": html.escape(text, quote=False)})


def _encode_teams_body(message: Delivery) -> bytes:
    # Runs of text are shown as they are; text blocks and facts would be read as Markdown.
    runs = [{"type": "TextRun", "text": message.title, "weight": "bolder"}]
    runs += [{"type": "TextRun", "text": f"\n{fact}"} for fact in message.facts]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [{"type": "RichTextBlock", "inlines": runs}],
    }
    kind = "application/vnd.microsoft.card.adaptive"
    attachment = {"contentType": kind, "contentUrl": None, "content": card}
    return msgspec.json.encode({"type": "message", "attachments": [attachment]})


_PAYLOADS: Mapping[str, Callable[[Delivery], bytes]] = {
    "standard": payload,
    "slack": _encode_slack_body,
    "teams": _encode_teams_body,
}


def _build_outcome(server: str, status: int, answer: str) -> Outcome:
    said = f' It said: "{answer}"' if answer else ""
    if 200 <= status < 300:
        return Outcome(delivered=True, words=f"{server} took it with status {status}.{said}")
    if status == _GONE:
        words = f"{server} wants no more messages (status 410).{said}"
        return Outcome(delivered=False, words=words, final=True)
    if 300 <= status < 400:
        words = f"{server} redirects (status {status}), which is not followed; set its new address."
        return Outcome(delivered=False, words=words)
    return Outcome(delivered=False, words=f"{server} refused it with status {status}.{said}")


async def _read_response_excerpt(response: HttpResponse) -> str:
    found = b""
    try:
        while len(found) < _ANSWER_BYTES and (piece := await response.piece()):
            found += piece
    except TransportFailed:
        pass
    response.close()
    text = " ".join(found.decode("utf-8", "replace").split())
    return "".join(each for each in text[:_SHOWN] if each.isprintable())
