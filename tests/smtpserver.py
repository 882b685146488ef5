"""An SMTP server in the test process: plain, upgraded or implicit TLS, with names and passwords."""

from __future__ import annotations

import asyncio
import base64
import email
import email.policy
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage

LOGIN = ("causerie", "open-sesame")


@dataclass
class Mailbox:
    """Letters received at ``port``; ``refuses`` are replies to the next recipients instead."""

    port: int = 0
    letters: asyncio.Queue[EmailMessage] = field(default_factory=asyncio.Queue)
    authenticated: list[bool] = field(default_factory=list)
    refuses: list[str] = field(default_factory=list)
    asked: int = 0
    recipients: list[str] = field(default_factory=list)

    async def letter(self) -> EmailMessage:
        """The next letter."""
        return await asyncio.wait_for(self.letters.get(), 60)


def text_of(letter: EmailMessage) -> str:
    """The plain text of a letter."""
    body = letter.get_body(("plain",))
    assert body is not None
    return str(body.get_content())


@asynccontextmanager
async def smtp(
    trust: ssl.SSLContext | None = None, *, implicit: bool = False
) -> AsyncIterator[Mailbox]:
    """On loopback; with ``trust`` it offers STARTTLS, or speaks TLS at once."""
    box = Mailbox()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _Talk(box, reader, writer, None if implicit else trust).run()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    at_once = trust if implicit else None
    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=at_once)
    box.port = server.sockets[0].getsockname()[1]
    try:
        yield box
    finally:
        server.close()


@dataclass
class _Talk:
    box: Mailbox
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    upgrade: ssl.SSLContext | None
    proven: bool = False

    async def say(self, line: str) -> None:
        self.writer.write(f"{line}\r\n".encode())
        await self.writer.drain()

    async def run(self) -> None:
        await self.say("220 test ESMTP")
        while line := (await self.reader.readline()).decode().strip():
            verb = line.split(maxsplit=1)[0].upper()
            if verb == "QUIT":
                await self.say("221 bye")
                return
            await getattr(self, f"on_{verb.lower()}", self.unknown)(line)

    async def unknown(self, _: str) -> None:
        await self.say("250 ok")

    async def on_ehlo(self, _: str) -> None:
        offers = ["250-test", *(["250-STARTTLS"] if self.upgrade else []), "250 AUTH PLAIN"]
        await self.say("\r\n".join(offers))

    async def on_starttls(self, _: str) -> None:
        if self.upgrade is None:
            await self.say("502 not here")
            return
        await self.say("220 go")
        await self.writer.start_tls(self.upgrade)
        self.upgrade = None

    async def on_auth(self, line: str) -> None:
        given = base64.b64decode(line.split()[2]).decode().split("\0")[1:]
        self.proven = tuple(given) == LOGIN
        await self.say("235 ok" if self.proven else "535 wrong")

    async def on_rcpt(self, line: str) -> None:
        self.box.asked += 1
        self.box.recipients.append(line.partition("<")[2].partition(">")[0])
        await self.say(self.box.refuses.pop(0) if self.box.refuses else "250 ok")

    async def on_data(self, _: str) -> None:
        await self.say("354 go")
        raw = await self.reader.readuntil(b"\r\n.\r\n")
        self.box.authenticated.append(self.proven)
        self.box.letters.put_nowait(
            email.message_from_bytes(
                raw[:-3].replace(b"\r\n..", b"\r\n."), EmailMessage, policy=email.policy.default
            )
        )
        await self.say("250 taken")
