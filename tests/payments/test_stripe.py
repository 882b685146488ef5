"""Payments at Stripe become credits exactly once, whatever comes again, late or out of order."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

import pytest
from accountkit import World
from edgekit import call, make_edge
from stripekit import (
    KEY,
    SECRET,
    disputed,
    event,
    paid,
    payment,
    refunded,
    signature,
    stripe,
)

from causerie.errors import InvalidRequest, UpstreamFailed
from causerie.hosted.accounts.bounds import NOTHING_FOR_NEWCOMERS, LimitsAndBudgets
from causerie.hosted.accounts.people import SYSTEM, Project
from causerie.hosted.identity.provider import IdentityHttp
from causerie.hosted.payments.stripe import Stripe
from causerie.observe.alerts import AlertKind, Condition

DONE, LATER, BACK = (
    "checkout.session.completed",
    "checkout.session.async_payment_succeeded",
    "charge.refunded",
)
WITHDRAWN, WON = "charge.dispute.funds_withdrawn", "charge.dispute.funds_reinstated"


class Checkout(Stripe):
    """Stripe's part of a service, with the alerts that it raised."""

    def __init__(self, world: World, url: str = "https://api.stripe.com") -> None:
        self.alerts: list[Condition] = []
        service = IdentityHttp(), world.accounts.credits, world.clock
        super().__init__(url, KEY, SECRET, "Acme", *service, self._keep_alert)

    async def _keep_alert(self, condition: Condition) -> None:
        self.alerts.append(condition)


async def post(there: Stripe, now: int, body: bytes, header: str | None = None) -> int:
    edge = make_edge()
    edge.mount("/webhooks", there.answer)
    sent = {"stripe-signature": signature(body, now) if header is None else header}
    return (await call(edge, "/webhooks/stripe", body, headers=sent)).status


async def amounts(world: World, project: Project) -> Sequence[Decimal]:
    return sorted(each.amount for each in await world.credits.of(SYSTEM, project.id))


async def test_only_fresh_signatures_of_the_secret_are_taken(lite: World) -> None:
    there, body = Checkout(lite), b'{"id": "evt_1"}'
    now = int(lite.now.timestamp())
    right = signature(body, now)
    other = signature(body, now, "whsec_another").partition("v1=")[2]
    stamp, _, proof = right.partition(",")
    for header in (
        right,
        f"{stamp},v1={other},{proof}",
        f"{right},v0=1",
        signature(body, now - 299),
    ):
        assert there.signed(header, body), header
    for header in (
        *("", "t=1", proof, f"t=x,{proof}", f"{stamp},v1=", f"{stamp},v0={proof[3:]}"),
        *(signature(body, now, "whsec_another"), signature(body, now - 301)),
        *(signature(body, now + 301), f"t={now + 1},{proof}", f"{stamp},v1=é"),
    ):
        assert not there.signed(header, body), header
    assert not there.signed(right, body + b" ")


async def test_a_payment_is_one_credit_however_often_it_is_reported(world: World) -> None:
    project, replicas = await world.project(), [Checkout(world), Checkout(world)]
    reports = [
        each.record(kind, paid(project.id, 2500))
        for each, kind in itertools.product(replicas, (DONE, LATER, DONE))
    ]
    await asyncio.gather(*reports)
    assert await amounts(world, project) == [Decimal(25)]
    await replicas[0].record(DONE, paid(project.id, 1099, "pi_2"))
    assert await amounts(world, project) == [Decimal("10.99"), Decimal(25)]
    assert (await world.credits.balance(SYSTEM, project.id)).left == Decimal("35.99")
    assert (await world.actions()).count("credits.put") == 2


@pytest.mark.parametrize("order", [*itertools.permutations(range(4))], ids=str)
async def test_refunds_take_back_their_share_in_any_order(
    lite: World, order: tuple[int, ...]
) -> None:
    """10 dollars and 1.90 of tax, of which 5.95 and then all are paid back; one report twice."""
    project, there = await lite.project(), Checkout(lite)
    reports = [
        (DONE, paid(project.id, 1000)),
        (BACK, refunded(project.id, 1000, 595)),
        (BACK, refunded(project.id, 1000, 1190)),
        (BACK, refunded(project.id, 1000, 595)),
    ]
    for index in order:
        await there.record(*reports[index])
    assert await lite.credits.left(project.id) == 0
    taken = [each for each in await amounts(lite, project) if each < 0]
    assert sum(taken) == -10
    assert Decimal(10) in await amounts(lite, project)


async def test_refunds_at_once_on_two_replicas_are_taken_once(world: World) -> None:
    project, there = await world.project(), Checkout(world)
    await there.record(DONE, paid(project.id, 1000))
    reports = (refunded(project.id, 1000, amount) for amount in (595, 1190, 595, 1190))
    await asyncio.gather(*(Checkout(world).record(BACK, each) for each in reports))
    assert await world.credits.left(project.id) == 0


@pytest.mark.parametrize("order", [*itertools.permutations(range(4))], ids=str)
async def test_a_dispute_takes_credits_until_it_is_won_in_any_order(
    lite: World, order: tuple[int, ...]
) -> None:
    """The dispute, again, its end, and the payment itself, which may be the last to come."""
    project = await lite.project()
    async with stripe() as stand_in:
        there = Checkout(lite, stand_in.url)
        stand_in.payments["pi_1"] = payment(project.id, 1000)
        await there.record(WITHDRAWN, disputed(1190, "pi_of_another_shop"))
        await there.record(WITHDRAWN, disputed(1190, payment_intent=None))
        assert await amounts(lite, project) == []
        reports = [
            (WITHDRAWN, disputed(1190)),
            (WITHDRAWN, disputed(1190)),
            (WON, disputed(1190)),
            (DONE, paid(project.id, 1000)),
        ]
        for index in order:
            await there.record(*reports[index])
        # The tax was never a credit.
        assert await amounts(lite, project) == [Decimal(-10), Decimal(10), Decimal(10)]
        await there.record(WITHDRAWN, disputed(300, id="dp_2"))
        assert await lite.credits.left(project.id) == 7


async def test_a_dispute_is_reported_again_while_stripe_does_not_say_whose_it_is(
    lite: World,
) -> None:
    project, now = await lite.project(), int(lite.now.timestamp())
    async with stripe() as stand_in:
        there, body = Checkout(lite, stand_in.url), event(WITHDRAWN, disputed(1190))
        stand_in.payments["pi_1"] = payment(project.id, 1000)
        stand_in.broken = True
        assert await post(there, now, body) == 502
        assert (await amounts(lite, project), there.alerts) == ([], [])
        stand_in.broken = False
        assert await post(there, now, body) == 200
        assert await amounts(lite, project) == [Decimal(-10)]


@pytest.mark.parametrize(
    ("kind", "changes", "why"),
    [
        (DONE, {"currency": "jpy"}, "its currency is jpy, and credits are in usd"),
        (DONE, {"amount_subtotal": 1}, "1 cents were paid, and not 1000"),
        (DONE, {"metadata": {"project": "prj_unknown0000000", "cents": "1000"}}, "no such project"),
        (DONE, {"metadata": {"project": "prj"}}, r"an unknown form \(KeyError\)"),
        (WITHDRAWN, {"currency": "eur"}, "its currency is eur, and credits are in usd"),
        (WITHDRAWN, {"amount": 0}, "An amount is above 0"),
    ],
)
async def test_an_amount_that_cannot_be_counted_is_an_alert_and_no_credit(
    lite: World, kind: str, changes: Mapping[str, object], why: str
) -> None:
    project, now = await lite.project(), int(lite.now.timestamp())
    async with stripe() as stand_in:
        there = Checkout(lite, stand_in.url)
        stand_in.payments["pi_1"] = payment(project.id, 1000)
        what = paid(project.id, 1000) if kind == DONE else disputed(1190)
        assert await post(there, now, event(kind, what | changes)) == 200
    [alert] = there.alerts
    assert re.search(why, alert.summary), alert.summary
    assert (alert.kind, alert.recovers) == (AlertKind.JOB, False)
    assert alert.summary.startswith("A payment at Stripe changed no credits, see evt_1 ")
    assert await amounts(lite, project) == []


async def test_a_refund_takes_its_share_in_any_currency(lite: World) -> None:
    """Of a charge in yen that bought 10 dollars half is paid back, which is 5 dollars."""
    project, there = await lite.project(), Checkout(lite)
    charge = refunded(project.id, 1000, 900) | {"currency": "jpy", "amount": 1800}
    await there.record(BACK, charge)
    assert await amounts(lite, project) == [Decimal(-5)]


async def test_what_is_not_paid_or_not_ours_adds_nothing(lite: World) -> None:
    project, there = await lite.project(), Checkout(lite)
    await there.record(DONE, paid(project.id, 1000, payment_status="unpaid"))
    await there.record(DONE, paid(project.id, 1000, metadata={}))
    await there.record("customer.created", {"id": "cus_1"})
    assert await amounts(lite, project) == []


async def test_webhooks_over_http(lite: World) -> None:
    project, there = await lite.project(), Checkout(lite)
    now, body = int(lite.now.timestamp()), event(DONE, paid(project.id, 500))
    assert await post(there, now, body, signature(body, now, "whsec_wrong")) == 400
    assert await amounts(lite, project) == []
    assert [await post(there, now, body) for _ in range(2)] == [200, 200]
    unknown = event(DONE, paid("prj_unknown0000000", 500, "pi_9"))
    odd = event(DONE, {"metadata": {"project": 1}})
    for other in (unknown, odd, b"[]", b"{", b'{"type": 1}'):
        assert await post(there, now, other) == 200
    assert await amounts(lite, project) == [Decimal(5)]


async def test_a_session_names_project_amount_and_the_way_back(lite: World) -> None:
    ada = await lite.person("ada")
    async with stripe() as stand_in:
        there = Checkout(lite, stand_in.url)
        page = await there.begin(ada, "prj_1", Decimal("12.50"), "https://acme.example/credits")
        assert page == f"{stand_in.url}/pay/1"
        [form] = stand_in.forms
        assert stand_in.keys == [f"Bearer {KEY}"]
        assert form["line_items[0][price_data][unit_amount]"] == "1250"
        assert (
            form["metadata[project]"] == form["payment_intent_data[metadata][project]"] == "prj_1"
        )
        assert form["success_url"] == "https://acme.example/credits?done=paid"
        assert form["customer_email"] == "ada@example.org"
        stand_in.broken = True
        with pytest.raises(UpstreamFailed, match="cannot begin now"):
            await there.begin(ada, "prj_1", Decimal(5), "https://acme.example/credits")


async def test_a_payment_ends_the_budget_of_nothing_and_goes_to_one_project(lite: World) -> None:
    project, other = await lite.project(), await lite.project()
    nothing = LimitsAndBudgets(budgets=(NOTHING_FOR_NEWCOMERS,))
    await lite.projects.set_bounds(SYSTEM, project.id, nothing)
    assert (await lite.projects.see(SYSTEM, project.id)).bounds.spends_nothing
    made = await lite.credits.put(SYSTEM, project.id, Decimal(5), payment="order-1")
    assert not (await lite.projects.see(SYSTEM, project.id)).bounds.spends_nothing
    assert await lite.credits.put(SYSTEM, project.id, Decimal(5), payment="order-1") == made
    with pytest.raises(InvalidRequest, match="another project") as refusal:
        await lite.credits.put(SYSTEM, other.id, Decimal(5), payment="order-1")
    assert refusal.value.status == 409
