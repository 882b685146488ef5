"""Channels of alerts: what receivers get, and what operators are told of it."""

from __future__ import annotations

import ssl
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from casekit import each_of
from certificates import Certificates
from smtpserver import LOGIN, smtp
from webhookreceiver import KEY, webhook_receiver

from causerie.observe.alert_channels import Email, Webhook
from causerie.observe.alerts import AlertKind, Delivery, secret_bytes, signature
from causerie.observe.mail import MailServer

MESSAGE = Delivery(
    "msg_1",
    "ops",
    "",
    AlertKind.BUDGET,
    firing=True,
    summary="Project Search has used 81 % of its budget",
    at=datetime(2026, 11, 25, 12, tzinfo=UTC),
    details={"project": "prj_1", "percent": "81"},
)


def now() -> datetime:
    return datetime.now(UTC)


def test_a_signature_is_that_of_the_specification() -> None:
    """The example that libraries of the specification publish."""
    key = secret_bytes("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    assert (
        signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
        == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


@each_of("secret", ["", "plain", "whsec_", "whsec_ä", "whsec_" + "A" * 28, "whsec_" + "A" * 92])
def test_a_secret_that_is_none_is_refused_without_its_words(secret: str) -> None:
    with pytest.raises(ValueError, match=r"whsec_|bytes") as raised:
        secret_bytes(secret)
    assert "plain" not in str(raised.value)


async def test_a_webhook_is_signed_and_has_the_facts() -> None:
    async with webhook_receiver() as receiver:
        outcome = await Webhook(receiver.url, KEY).send(MESSAGE, now())
        assert outcome.delivered
        assert "with status 204" in outcome.words
        posted = await receiver.next()
        assert (posted.path, posted.id) == ("/hook?team=a", "msg_1")
        assert posted.body == {
            "type": "budget.firing",
            "timestamp": "2026-11-25T12:00:00Z",
            "data": {
                "summary": MESSAGE.summary, "state": "firing", "project": "prj_1", "percent": "81",
            },
        }  # fmt: skip
        over = replace(MESSAGE, id="msg_2", firing=False)
        assert (await Webhook(receiver.url, KEY).send(over, now())).delivered
        body = (await receiver.next()).body
        assert (body["type"], body["data"]["summary"]) == (
            "budget.resolved",
            f"Resolved: {MESSAGE.summary}",
        )
        wrong = await Webhook(receiver.url, bytes(32)).send(MESSAGE, now())
        assert (wrong.delivered, "status 401" in wrong.words) == (False, True)


async def test_slack_and_teams_get_messages_that_nobody_can_put_links_into() -> None:
    """A project's name is what a member wrote."""
    named = "Project <https://evil|[x](https://evil)> & more has used 81 % of its budget"
    message = replace(MESSAGE, summary=named, firing=False)
    async with webhook_receiver() as receiver:
        for format in ("slack", "teams"):
            assert (await Webhook(receiver.url, KEY, format).send(message, now())).delivered
        slack, teams = (await receiver.next()).body, (await receiver.next()).body
        unsigned = await Webhook(receiver.url, None, "slack").send(message, now())
        assert (unsigned.delivered, receiver.wrong) == (False, ["none"])
    title = "Resolved: Project &lt;https://evil|[x](https://evil)&gt; &amp; more has used 81 %"
    assert slack == {"text": f"{title} of its budget\nproject: prj_1\npercent: 81"}
    [attachment] = teams["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    [block] = attachment["content"]["body"]
    assert {block["type"], *(run["type"] for run in block["inlines"])} == {
        "RichTextBlock",
        "TextRun",
    }
    texts = [run["text"] for run in block["inlines"]]
    assert texts == [f"Resolved: {named}", "\nproject: prj_1", "\npercent: 81"]


async def test_operators_are_told_what_the_receiver_answered(certificates: Certificates) -> None:
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.load_cert_chain(certificates.certificate, certificates.key)
    async with webhook_receiver(trust) as receiver:
        receiver.words = "Quota\n of <b>team</b> a is used"
        receiver.answers = [503, 302, 410]
        hook = Webhook(receiver.url, KEY, ca_file=str(certificates.ca))
        outcomes = [await hook.send(MESSAGE, now()) for _ in range(4)]
        assert [(each.delivered, each.final) for each in outcomes] == [
            *((False, False), (False, False), (False, True), (True, False)),
        ]
        assert 'status 503. It said: "Quota of <b>team</b> a is used"' in outcomes[0].words
        assert "redirects" in outcomes[1].words
        stranger = await Webhook(receiver.url, KEY).send(MESSAGE, now())
        assert (stranger.delivered, "certificate" in stranger.words) == (False, True)
    gone = await Webhook("http://127.0.0.1:9/secret-path", KEY, seconds=5).send(MESSAGE, now())
    assert not gone.delivered
    assert "127.0.0.1:9" in gone.words
    assert "secret-path" not in gone.words


@pytest.mark.parametrize("tls", ["starttls", "implicit"])
async def test_a_letter_goes_over_tls(certificates: Certificates, tls: str) -> None:
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.load_cert_chain(certificates.certificate, certificates.key)
    user, password = LOGIN
    async with smtp(trust, implicit=tls == "implicit") as box:
        server = MailServer(
            *("127.0.0.1", box.port, "causerie@example.org", tls, user, password),  # type: ignore[arg-type]  # one of the words
            ca_file=str(certificates.ca),
        )
        outcome = await Email(server, "ops@example.org", "https://c.example.org").send(
            MESSAGE, now()
        )
        assert outcome.delivered
        letter = await box.letter()
        assert (letter["To"], letter["Subject"]) == (
            *("ops@example.org", f"[Causerie] {MESSAGE.summary}"),
        )
        text = letter.get_content()
        assert "percent: 81" in text
        assert "https://c.example.org/console/" in text
        assert box.authenticated == [True]
        wrong = await Email(replace(server, password="no"), "ops@example.org").send(MESSAGE, now())
        assert "user or password are wrong: 535 wrong" in wrong.words


async def test_operators_are_told_why_a_letter_was_refused() -> None:
    async with smtp() as box:
        server = MailServer("127.0.0.1", box.port, "causerie@example.org", "off")
        box.refuses = ["550 no such person", "451 later"]
        for_good, for_now = [
            await Email(server, "ops@example.org").send(MESSAGE, now()) for _ in range(2)
        ]
        assert (for_good.final, for_now.final) == (True, False)
        assert "550 no such person" in for_good.words
        plain = await Email(replace(server, tls="starttls"), "ops@example.org").send(MESSAGE, now())
        assert "no STARTTLS" in plain.words
