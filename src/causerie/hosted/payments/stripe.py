"""Stripe Checkout over its HTTP API: pages that people pay on, and signed webhooks of payments.

Only the address of the settings is requested. Stripe reports a payment by webhook, perhaps again,
late and out of order; each is one credit by the id of its payment, a refund takes back the share
that was refunded, and a dispute takes back what Stripe withdraws, until it is won. A report that
cannot be counted, such as one in another currency, changes nothing and is an alert. Taxes and
invoices are Stripe's: credits are what was bought without tax.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any
from urllib.parse import quote

import msgspec
import structlog

from causerie.errors import InvalidRequest, NotFound, ServiceError, UpstreamFailed
from causerie.hosted.accounts.people import Actor, User
from causerie.hosted.accounts.statement import Credits
from causerie.hosted.identity.provider import IdentityHttp, IdentityProviderFailed
from causerie.http.exchange import BodyLimits, Exchange, read_body
from causerie.observe.alerts import AlertKind, Condition
from causerie.protocol.money import BILLION, amount_of
from causerie.protocol.numbers import whole_number

_log = structlog.get_logger(__name__)
STRIPE = Actor("system", "stripe", "Stripe", operator=True)
_TOLERANCE_SECONDS = 300
_LIMITS = BodyLimits(max_bytes=512 * 1024, seconds=10.0)
_PAID = ("checkout.session.completed", "checkout.session.async_payment_succeeded")
_REFUNDED = "charge.refunded"
_DISPUTED = {"charge.dispute.funds_withdrawn": -1, "charge.dispute.funds_reinstated": 1}
_UNUSABLE = (
    *(msgspec.DecodeError, InvalidRequest, NotFound),
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
)


@dataclass(eq=False, repr=False)
class Stripe:
    """Creates payment pages at Stripe, and books credits as webhooks report the payments."""

    url: str
    """Address of Stripe's API."""
    key: str
    webhook_secret: str
    """It signs the webhooks."""
    service_name: str
    """It is shown on the page of the payment."""
    http: IdentityHttp
    credits: Credits
    clock: Callable[[], datetime]
    alert: Callable[[Condition], Awaitable[None]]

    async def begin(self, user: User, project_id: str, amount: Decimal, back: str) -> str:
        """Return the URL of a new payment page leading ``back``; raise :class:`UpstreamFailed`."""
        cents = int(amount * 100)
        of = {"project": project_id, "cents": str(cents)}
        form = {
            "mode": "payment",
            "success_url": f"{back}?done=paid",
            "cancel_url": back,
            "client_reference_id": project_id,
            "customer_email": user.email,
            "line_items[0][quantity]": "1",
            "line_items[0][price_data][currency]": "usd",
            "line_items[0][price_data][unit_amount]": str(cents),
            "line_items[0][price_data][product_data][name]": f"Credits for {self.service_name}",
            **{f"metadata[{name}]": value for name, value in of.items()},
            **{f"payment_intent_data[metadata][{name}]": value for name, value in of.items()},
        }
        failed = "The payment cannot begin now"
        found = (await self._ask_stripe("checkout/sessions", failed, form)).get("url")
        if not isinstance(found, str) or not found.startswith(("https://", self.url)):
            raise UpstreamFailed(f"{failed}: Stripe returned no page for it.")
        return found

    async def _ask_stripe(
        self, path: str, error: str, form: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        headers = [("authorization", f"Bearer {self.key}")]
        try:
            return await self.http.ask(f"{self.url.rstrip('/')}/v1/{path}", headers, form)
        except IdentityProviderFailed as failure:
            _log.error("stripe.failed", reason=str(failure))
            raise UpstreamFailed(f"{error}: Stripe does not answer. Try again later.") from failure

    async def answer(self, exchange: Exchange) -> None:
        """Answer a webhook: 400 for a wrong signature, 200 once the event is booked or unusable."""
        body = await read_body(exchange, _LIMITS)
        given = exchange.headers.get("stripe-signature", "")
        if exchange.method != "POST" or not self.signed(given, body):
            raise InvalidRequest("The signature of this webhook is wrong or too old.")
        event: Mapping[str, Any] = {}
        try:
            event = msgspec.json.decode(body, type=dict[str, Any])
            await self.record(str(event["type"]), event["data"]["object"])
        except _UNUSABLE as failure:
            # Signed, so it would be no other at the next delivery.
            await self._alert_unusable_event(event, failure)
        exchange.respond(200, b'{"received": true}', content_type="application/json")

    async def _alert_unusable_event(self, event: Mapping[str, Any], failure: Exception) -> None:
        said = isinstance(failure, ServiceError)
        why = str(failure) if said else f"it has an unknown form ({type(failure).__name__})"
        id, kind = (str(event.get(name, ""))[:100] for name in ("id", "type"))
        _log.error("stripe.event_left", event_id=id, kind=kind, reason=why)
        words = f"A payment at Stripe changed no credits, see {id} ({kind}) there: {why}"
        details = {"job": "payments", "event": id, "type": kind}
        await self.alert(
            Condition(f"job:stripe:{id}", AlertKind.JOB, words, details, recovers=False)
        )

    def signed(self, header: str, body: bytes) -> bool:
        """Return whether a signature in the header fits the body and is at most 300 s old."""
        parts = [part.strip().partition("=")[::2] for part in header.split(",")]
        at = whole_number(next((value for name, value in parts if name == "t"), ""), 10**12)
        if at is None or abs(self.clock().timestamp() - at) > _TOLERANCE_SECONDS:
            return False
        secret = self.webhook_secret.encode()
        right = hmac.new(secret, b"%d.%b" % (at, body), hashlib.sha256).hexdigest().encode()
        given = [value.encode("utf-8", "replace") for name, value in parts if name == "v1"]
        return any(hmac.compare_digest(right, each) for each in given[:10])

    async def record(self, kind: str, what: Mapping[str, Any]) -> None:
        """Add the credits of a paid session or won dispute; take back those of a refund or dispute.

        Raises :class:`UpstreamFailed` if Stripe does not say whose payment is disputed.
        """
        if kind in _DISPUTED and what["payment_intent"]:
            # A dispute says nothing of its project, and may be reported before its payment.
            path = f"payment_intents/{quote(what['payment_intent'], safe='')}"
            order = _order_if_any(await self._ask_stripe(path, "The dispute cannot be counted now"))
            if order is not None:
                await self._record_dispute(what, _DISPUTED[kind], *order)
            return
        order = _order_if_any(what) if kind in (*_PAID, _REFUNDED) else None
        if order is None:
            return  # of another product of the same account
        project, cents = order
        payment = _build_payment_id(what["payment_intent"] or what["id"])
        if kind == _REFUNDED:
            back = _to_dollars(round(Fraction(cents * what["amount_refunded"], what["amount"])))
            await self.credits.take_back(STRIPE, project, payment, back, "refunded by Stripe")
        elif what["payment_status"] == "paid":
            if _usd_cents(what, what["amount_subtotal"]) != cents:
                raise InvalidRequest(f"{what['amount_subtotal']} cents were paid, and not {cents}")
            await self.credits.put(STRIPE, project, _to_dollars(cents), "paid by Stripe", payment)

    async def _record_dispute(
        self, dispute: Mapping[str, Any], sign: int, project_id: str, cents: int
    ) -> None:
        amount = sign * _to_dollars(min(_usd_cents(dispute, dispute["amount"]), cents))  # untaxed
        note, step = ("disputed", "dispute") if sign < 0 else ("dispute won", "won")
        step = f"{_build_payment_id(dispute['payment_intent'])}:{step}:{str(dispute['id'])[:100]}"
        await self.credits.put(STRIPE, project_id, amount, f"{note} at Stripe", step)


def _order_if_any(payment: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return project id and cents from a payment's metadata; ``None`` if it buys no credits."""
    bought = payment.get("metadata") or {}
    if "project" not in bought:
        return None
    return str(bought["project"]), int(bought["cents"])


def _usd_cents(payment: Mapping[str, Any], cents: int) -> int:
    if payment["currency"] != "usd":
        raise InvalidRequest(f"its currency is {payment['currency']}, and credits are in usd")
    return cents


def _to_dollars(cents: int) -> Decimal:
    return amount_of(cents * BILLION // 100)


def _build_payment_id(stripe_id: str) -> str:
    return f"stripe:{stripe_id[:100]}"


class Sales(msgspec.Struct, frozen=True):
    """How credits are sold: by Stripe or on a page, the amounts, and the balance that is low."""

    stripe: Stripe | None = None
    page: str | None = None
    amounts: Sequence[Decimal] = ()
    least: Decimal = Decimal(0)
    most: Decimal = Decimal(0)
    low: Decimal = Decimal(0)

    @property
    def open(self) -> bool:
        """Return whether credits are for sale, by Stripe or on the operator's page."""
        return self.stripe is not None or self.page is not None

    def page_for(self, project_id: str) -> str:
        """Return the address of the operator's own shop for a project; empty without one."""
        return (self.page or "").replace("{project}", quote(project_id))
