"""Settings of alerts, their notification channels, and the server that sends mail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct

from causerie.settings import values
from causerie.settings.problems import Broken, tables, taken
from causerie.settings.provider import address_rules, certificate_rules, is_readable


class Mail(Struct, frozen=True, kw_only=True):
    """The SMTP server that sends mail: to people who sign up, and about alerts."""

    host: values.Text | None = None
    """Its name. Unset: no mail is sent."""
    port: Annotated[int, Meta(ge=1, le=65535)] = 587
    """Its port."""
    tls: Literal["starttls", "implicit", "off"] = "starttls"
    """`starttls` on a plain connection (port 587), `implicit` from the beginning (port 465), or
    `off`, for a server on the same machine."""
    sender: values.Text | None = None
    """The address that mail comes from. `host` needs it."""
    user: values.Text | None = None
    """The name to authenticate with, if any."""
    password: values.KeyPlace | None = None
    """Where the password of `user` is found."""
    ca_file: values.TrustedCertificates = None


def mail_rules(mail: Mail, address: str | None, *, sign_up: bool) -> Iterator[Broken]:
    """Yield problems of ``mail``; ``address`` and ``sign_up`` are settings of ``console``."""
    yield from certificate_rules(("mail", "ca_file"), mail.ca_file)
    if mail.host is not None and mail.sender is None:
        yield Broken(("mail", "sender"), "is missing; it is the address that mail comes from")
    if mail.host is not None and sign_up and address is None:
        yield Broken(("mail", "host"), "needs `console.address`, which links in mail begin with")
    if (mail.user is None) != (mail.password is None):
        yield Broken(("mail", "user"), "and `password` go together; set both or none")
    if mail.user is not None and mail.tls == "off" and mail.host not in ("localhost", "127.0.0.1"):
        yield Broken(("mail", "tls"), "is off, so the password would be readable on the way")


AlertName = Literal["budget", "provider", "error_rate", "key_expiry", "job"]
OWNERS = "owners"  # the channel of reminders to owners of keys
ALERT_NAMES: tuple[AlertName, ...] = get_args(AlertName)

EmailAddress = Annotated[
    str,
    values.matching(
        r"^[^\s@<>,;:()\[\]\\\"]{1,64}@[^\s@<>,;:()\[\]\\\"]{1,255}\Z",
        "an address like `ops@example.org`",
    ),
]
Percent = Annotated[int, Meta(ge=1, le=1000)]


class AlertWebhook(Struct, frozen=True, kw_only=True):
    """An address that gets alerts as JSON."""

    name: values.DoorName
    """Name of the channel."""
    url: values.WebAddress
    """Where alerts are posted; `https://`, but on this machine."""
    format: Literal["standard", "slack", "teams"] = "standard"
    """`standard` is signed JSON by the Standard Webhooks specification; `slack` and `teams` are
    messages for an incoming webhook of Slack, or of a workflow in Microsoft Teams."""
    secret: values.KeyPlace | None = None
    """Where the secret for signatures is found: `whsec_` and 24 to 64 bytes in base64. `standard`
    needs it."""
    allow_http: bool = False
    """Whether `url` may begin with `http://` and name another machine."""
    ca_file: values.TrustedCertificates = None
    kinds: tuple[AlertName, ...] = ALERT_NAMES
    """Alerts that this channel gets."""


class AlertEmail(Struct, frozen=True, kw_only=True):
    """E-mail addresses that get alerts, sent by the server of `mail`."""

    name: values.DoorName
    """Name of the channel."""
    to: Annotated[tuple[EmailAddress, ...], Meta(min_length=1, max_length=20)]
    """Addresses; each gets a letter of its own."""
    kinds: tuple[AlertName, ...] = ALERT_NAMES
    """Alerts that this channel gets."""


class Alerts(Struct, frozen=True, kw_only=True):
    """Channels that get alerts, when an alert begins, and when it is over."""

    webhooks: tuple[AlertWebhook, ...] = ()
    emails: tuple[AlertEmail, ...] = ()
    budget_percent: tuple[Percent, ...] = (50, 80, 100)
    """Shares of a budget whose use is notified, once in each period."""
    error_percent: Annotated[int, Meta(ge=1, le=100)] = 20
    """Share of a model's requests that fail (status 500 and above)."""
    error_window_seconds: values.Patience = 300.0
    """How long a time that share is taken of."""
    error_requests: values.Count = 20
    """Fewer requests in that time say nothing."""
    key_expiry_days: tuple[Annotated[int, Meta(ge=1, le=365)], ...] = (14, 3, 1)
    """Days before a key expires on which that is notified."""
    remind_owners: bool = True
    """Whether people get letters too, if `mail` is set: about their own keys and budgets, and
    owners of a project about its budgets and those of its keys."""
    check_seconds: values.Patience = 15.0
    """How often providers, error rates and jobs are looked at."""
    accounts_seconds: values.Patience = 60.0
    """How often budgets and keys are looked at."""
    resolve_seconds: values.Patience = 60.0
    """An alert is over after so long a time without its cause."""
    quiet_seconds: values.Patience = 300.0
    """An alert that is over does not come again within this time."""
    messages_per_hour: values.Count = 60
    """Most messages to one receiver in an hour; others are dropped."""


def alert_rules(alerts: Alerts, mail: Mail) -> Iterator[Broken]:
    channels = list(tables(alerts, "webhooks", "emails"))
    yield from taken((("alerts", *place, "name"), one.name) for place, one in channels)
    for place, one in channels:
        if one.name == OWNERS:
            words = f'"{OWNERS}" stands for the owners of keys; choose another'
            yield Broken(("alerts", *place, "name"), words)
    for place, webhook in tables(alerts, "webhooks"):
        at, base = ("alerts", *place), webhook.url.partition("?")[0]
        yield from address_rules((*at, "url"), base, "sign with `secret` instead")
        if webhook.secret is None and webhook.format == "standard":
            yield Broken((*at, "secret"), "is missing; receivers check signatures by it")
        yield from certificate_rules((*at, "ca_file"), webhook.ca_file)
        if is_readable(base) and not webhook.allow_http:
            words = "begins with `http://`: anybody on the way could read it; use `https://`, or "
            yield Broken((*at, "url"), f"{words}set `allow_http = true`")
    if alerts.emails and mail.host is None:
        yield Broken(("alerts", "emails"), "needs `mail.host`, the server that takes letters")
