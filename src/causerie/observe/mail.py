"""Send e-mails by SMTP, one after the other, without blocking anything else."""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formataddr, formatdate, make_msgid, parseaddr
from functools import partial
from typing import Literal, TypeVar

import structlog

from causerie.http.event_loop import in_daemon_thread

STOP_SECONDS = 3.0
"""Longest time that a stop waits for a letter that is being sent."""
_T = TypeVar("_T")


async def in_thread(work: Callable[[], _T], stop_seconds: float = STOP_SECONDS) -> _T:
    """Run ``work`` in a thread of its own; return its result, or raise its exception.

    When cancelled, wait ``stop_seconds`` for a result, which is returned, to be recorded;
    the cancellation comes again at the next ``await``.
    """
    outcome = asyncio.wrap_future(in_daemon_thread(work, "letters"))
    try:
        return await asyncio.shield(outcome)
    except asyncio.CancelledError:
        await asyncio.wait([outcome], timeout=stop_seconds)
        task = asyncio.current_task()
        if not outcome.done() or task is None:
            raise
        task.cancel()
        return outcome.result()


log = structlog.get_logger(__name__)

NOT_SENT = (OSError, smtplib.SMTPException, ValueError)
"""What :func:`send_now` raises."""
_WAITING = 1000
_TRIES = 3


@dataclass(frozen=True, slots=True)
class MailServer:
    """Connection settings of an SMTP server, and the sender of the e-mails."""

    host: str
    port: int
    sender: str
    tls: Literal["starttls", "implicit", "off"] = "starttls"
    """``starttls`` requires an upgrade to TLS, ``implicit`` starts with it."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class Letter:
    """One e-mail, in plain text, and in HTML too if there is ``html``."""

    to: str = field(repr=False)
    subject: str
    text: str = field(repr=False)
    html: str = field(default="", repr=False)
    name: str = ""
    """Name of the sender, unless the settings give one."""


class Outbox:
    """The queue of letters; the first retry of a failed one comes after ``retry_seconds``.

    Nobody waits for a letter, so the time of a request does not reveal whether one was sent.
    """

    def __init__(
        self, server: MailServer, *, retry_seconds: float = 10.0, stop_seconds: float = STOP_SECONDS
    ) -> None:
        self._server = server
        self._letter_stop_seconds = stop_seconds
        self._first_retry_seconds = retry_seconds
        self._letter_queue: asyncio.Queue[Letter] = asyncio.Queue(_WAITING)

    def send(self, letter: Letter) -> None:
        """Queue a letter, or drop and log it if too many wait."""
        try:
            self._letter_queue.put_nowait(letter)
        except asyncio.QueueFull:
            log.error("mail.dropped", reason=f"{_WAITING} letters wait already")

    async def deliver(self) -> None:
        """Send queued letters until cancelled, and log how many are left."""
        sending = 0
        try:
            while True:
                letter = await self._letter_queue.get()
                sending = 1
                await self._send_letter_with_retries(letter)
                sending = 0
        finally:
            if left := self._letter_queue.qsize() + sending:
                log.warning("mail.left", letters=left, reason="the service stops")

    async def _send_letter_with_retries(self, letter: Letter) -> None:
        for attempt in range(1, _TRIES + 1):
            try:
                await in_thread(partial(send_now, self._server, letter), self._letter_stop_seconds)
            except NOT_SENT as failure:
                refused = isinstance(failure, smtplib.SMTPRecipientsRefused | ValueError)
                last = attempt == _TRIES or refused
                event, name = "mail.not_sent" if last else "mail.tried", type(failure).__name__
                log.warning(event, attempt=attempt, reason=name)  # its words may hold the address
                if last:
                    return
                await asyncio.sleep(self._first_retry_seconds * 2 ** (attempt - 1))
            else:
                log.info("mail.sent", attempt=attempt)
                return


def send_now(server: MailServer, letter: Letter) -> None:
    """Hand a letter to the server; blocks. Raises what ``NOT_SENT`` lists."""
    message = EmailMessage()
    name, address = parseaddr(server.sender)
    message["From"] = formataddr((name or letter.name, address))
    message["To"], message["Subject"] = letter.to, letter.subject
    if [each.addr_spec for each in message["To"].addresses] != [letter.to]:
        raise ValueError("a letter has one recipient, named by its address alone")
    message["Date"], message["Message-ID"] = formatdate(), make_msgid(domain=server.host)
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(letter.text)
    if letter.html:
        message.add_alternative(letter.html, subtype="html")
    with _open_smtp_connection_without_login(server) as connection:
        if server.user is not None:
            connection.login(server.user, server.password or "")
        connection.send_message(message, to_addrs=[letter.to])


def _open_smtp_connection_without_login(server: MailServer) -> smtplib.SMTP:
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


def reason(failure: Exception) -> str:
    """Return why a letter was not sent, for operators."""
    match failure:
        case smtplib.SMTPRecipientsRefused():
            code, said = next(iter(failure.recipients.values()))
            return f"the server refuses the address: {_format_reply(code, said)}"
        case smtplib.SMTPAuthenticationError():
            reply = _format_reply(failure.smtp_code, failure.smtp_error)
            return f"user or password are wrong: {reply}"
        case smtplib.SMTPNotSupportedError():
            return "the server offers no STARTTLS, or does not let anybody authenticate"
        case smtplib.SMTPResponseException():
            return f"the server refuses: {_format_reply(failure.smtp_code, failure.smtp_error)}"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {failure.verify_message}"
        case ssl.SSLError():
            return "TLS failed; `mail.tls` and the port may not go together"
        case TimeoutError():
            return "no answer in time"
        case smtplib.SMTPServerDisconnected():
            return "the server has closed the connection"
        case OSError(strerror=str(words)):
            return words.lower()
        case _:
            return str(failure) or type(failure).__name__


def is_final(failure: Exception) -> bool:
    """Return true if the server has refused the recipient's address permanently (5xx)."""
    if not isinstance(failure, smtplib.SMTPRecipientsRefused):
        return False
    code, _ = next(iter(failure.recipients.values()))
    return code >= 500


def _format_reply(code: int, message: bytes | str) -> str:
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else message
    return f"{code} {' '.join(text.split())[:200]}"
