"""A stand-in for Stripe: sessions by its HTTP API, a page that pays, and webhooks that it signs.

It signs with another HMAC than ours.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl

from accountkit import World
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.hmac import HMAC

from causerie.hosted.identity.provider import IdentityHttp
from causerie.hosted.payments.stripe import Sales, Stripe
from causerie.observe.alerts import Condition

KEY, SECRET = "sk_test_a-key-of-the-tests", "whsec_a-secret-of-the-tests"


def signature(body: bytes, at: int | None = None, secret: str = SECRET) -> str:
    """The header ``Stripe-Signature`` of a webhook."""
    at = int(time.time()) if at is None else at
    digest = HMAC(secret.encode(), hashes.SHA256())
    digest.update(f"{at}.".encode() + body)
    return f"t={at},v1={digest.finalize().hex()}"


def paid(project: str, cents: int, payment: str = "pi_1", **changes: object) -> dict[str, Any]:
    """A session that is complete, with 19 % of tax on top."""
    return {
        "id": f"cs_{payment}",
        "payment_intent": payment,
        "payment_status": "paid",
        "currency": "usd",
        "amount_subtotal": cents,
        "amount_total": cents * 119 // 100,
        "metadata": {"project": project, "cents": str(cents)},
        **changes,
    }


def refunded(project: str, cents: int, refund: int, payment: str = "pi_1") -> dict[str, Any]:
    """A charge of which ``refund`` was paid back in all, tax included."""
    return {
        "id": f"ch_{payment}",
        "payment_intent": payment,
        "currency": "usd",
        "amount": cents * 119 // 100,
        "amount_refunded": refund,
        "metadata": {"project": project, "cents": str(cents)},
    }


def disputed(amount: int, payment: str = "pi_1", **changes: object) -> dict[str, Any]:
    """A dispute, which says of the payment nothing but its id."""
    return {
        "id": "dp_1",
        "payment_intent": payment,
        "charge": f"ch_{payment}",
        "currency": "usd",
        "amount": amount,
        "metadata": {},
        **changes,
    }


def payment(project: str, cents: int, id: str = "pi_1") -> dict[str, Any]:
    """A payment as Stripe's API returns it, with the metadata of its session."""
    metadata = {"project": project, "cents": str(cents)}
    return {"id": id, "currency": "usd", "amount": cents * 119 // 100, "metadata": metadata}


def event(kind: str, what: Mapping[str, Any]) -> bytes:
    return json.dumps({"id": "evt_1", "type": kind, "data": {"object": what}}).encode()


async def unalerted(condition: Condition) -> None:
    raise AssertionError(condition)


def sales(world: World, url: str = "https://api.stripe.com") -> Sales:
    """Credits that are sold by Stripe, for 5 to 100 dollars; a balance below 1 is low."""
    service = IdentityHttp(), world.accounts.credits, world.clock
    there = Stripe(url, KEY, SECRET, "Acme", *service, unalerted)
    return Sales(there, None, (Decimal(10), Decimal(25)), Decimal(5), Decimal(100), Decimal(1))


@dataclass
class StandIn:
    """The server at ``url``; ``forms`` are the sessions that were asked for.

    It knows ``payments`` by their ids; another has no metadata of ours.
    """

    url: str = ""
    forms: list[dict[str, str]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    payments: dict[str, dict[str, Any]] = field(default_factory=dict)
    broken: bool = False
    paid: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)

    def answer(self, line: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str, str]:
        """Return status, type and text of an answer."""
        method, path, _ = line.split(" ", 2)
        if path.startswith("/v1/"):
            self.keys.append(headers.get("authorization", ""))
            if self.broken or self.keys[-1] != f"Bearer {KEY}":
                return 401, "application/json", '{"error": {"message": "Invalid API Key"}}'
        if method == "GET" and path.startswith("/v1/payment_intents/"):
            id = path.rpartition("/")[2]
            known = self.payments.get(id, {"id": id, "currency": "usd", "metadata": {}})
            return 200, "application/json", json.dumps(known)
        if method == "POST" and path == "/v1/checkout/sessions":
            assert headers["content-type"] == "application/x-www-form-urlencoded"
            self.forms.append(dict(parse_qsl(body.decode())))
            place = f"{self.url}/pay/{len(self.forms)}"
            return 200, "application/json", json.dumps({"id": f"cs_{path}", "url": place})
        form = self.forms[int(path.rpartition("/")[2]) - 1]
        cents = int(form["line_items[0][price_data][unit_amount]"])
        session = paid(form["metadata[project]"], cents, f"pi_{len(self.forms)}")
        self.paid.put_nowait(
            session
            | {"metadata": {name: form[f"metadata[{name}]"] for name in ("project", "cents")}}
        )
        return 200, "text/html", f'<h1>Pay</h1><a href="{form["success_url"]}">Pay now</a>'


@asynccontextmanager
async def stripe() -> AsyncIterator[StandIn]:
    """On loopback."""
    there = StandIn()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = (each.partition(": ") for each in head[1:] if each)
        headers = {name.lower(): value for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        status, kind, text = there.answer(head[0], headers, body)
        answer = (
            f"HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\n"
            f"content-length: {len(text.encode())}\r\nconnection: close\r\n\r\n{text}"
        )
        writer.write(answer.encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    there.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield there
    finally:
        server.close()
