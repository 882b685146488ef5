"""Sends short letters by SMTP, one after the other, alongside everything else.

A letter is queued at once and nobody waits for it, so how long a request takes says nothing of
whether a letter was sent. A letter that cannot be sent is tried again a few times, then dropped,
and the log reports it, without an address.
"""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from functools import partial
from typing import Literal

import structlog

from causerie.mail.sending import STOP_SECONDS, in_thread

log = structlog.get_logger(__name__)

_WAITING = 1000
_TRIES = 3


@dataclass(frozen=True, slots=True)
class MailServer:
    """Server and sender of letters."""

    host: str
    port: int
    sender: str
    tls: Literal["starttls", "implicit", "off"] = "starttls"
    """``starttls`` upgrades a plain connection and refuses to go on without, ``implicit`` begins
    with TLS, ``off`` is for servers on the same machine.
    """
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class Letter:
    """One letter, in plain text."""

    to: str = field(repr=False)
    subject: str
    text: str = field(repr=False)


class Outbox:
    """Letters that wait to be sent.

    ``retry_seconds`` is the first pause after a failure, ``stop_seconds`` the longest time that a
    stop waits for a letter which is on its way.
    """

    def __init__(
        self, server: MailServer, *, retry_seconds: float = 10.0, stop_seconds: float = STOP_SECONDS
    ) -> None:
        self._server = server
        self._stop_seconds = stop_seconds
        self._retry_seconds = retry_seconds
        self._waiting: asyncio.Queue[Letter] = asyncio.Queue(_WAITING)

    def send(self, letter: Letter) -> None:
        """Queue a letter; where too many wait it is dropped, and the log says so."""
        try:
            self._waiting.put_nowait(letter)
        except asyncio.QueueFull:
            log.error("mail.dropped", reason=f"{_WAITING} letters wait already")

    async def deliver(self) -> None:
        """Send what is queued until this is cancelled; the log says how many letters are left."""
        sending = 0
        try:
            while True:
                letter = await self._waiting.get()
                sending = 1
                await self._deliver(letter)
                sending = 0
        finally:
            if left := self._waiting.qsize() + sending:
                log.warning("mail.left", letters=left, reason="the service stops")

    async def _deliver(self, letter: Letter) -> None:
        for attempt in range(1, _TRIES + 1):
            try:
                send = partial(send_now, self._server, letter)
                await in_thread(send, self._stop_seconds)
            except (OSError, smtplib.SMTPException, ValueError) as failure:
                refused = isinstance(failure, smtplib.SMTPRecipientsRefused | ValueError)
                last = attempt == _TRIES or refused
                log.warning(
                    "mail.not_sent" if last else "mail.tried",
                    attempt=attempt,
                    reason=type(failure).__name__,  # its words may hold the address
                )
                if last:
                    return
                await asyncio.sleep(self._retry_seconds * 2 ** (attempt - 1))
            else:
                log.info("mail.sent", attempt=attempt)
                return


def send_now(server: MailServer, letter: Letter) -> None:
    """Hand a letter to the server; blocks. Raises :class:`OSError` and ``SMTPException``."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = server.sender, letter.to, letter.subject
    if [each.addr_spec for each in message["To"].addresses] != [letter.to]:
        raise ValueError("a letter has one recipient, named by its address alone")
    message["Date"], message["Message-ID"] = formatdate(), make_msgid(domain=server.host)
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(letter.text)
    with _connected(server) as connection:
        if server.user is not None:
            connection.login(server.user, server.password or "")
        connection.send_message(message, to_addrs=[letter.to])


def _connected(server: MailServer) -> smtplib.SMTP:
    if server.tls == "off":
        return smtplib.SMTP(server.host, server.port, timeout=server.seconds)
    trust = ssl.create_default_context(cafile=server.ca_file)
    if server.tls == "implicit":
        return smtplib.SMTP_SSL(server.host, server.port, timeout=server.seconds, context=trust)
    connection = smtplib.SMTP(server.host, server.port, timeout=server.seconds)
    try:
        connection.starttls(context=trust)
    except BaseException:
        connection.close()
        raise
    return connection
