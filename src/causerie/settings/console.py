"""Settings of pages for people: console, branding, payments, sign-in and policies."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from causerie.settings import values
from causerie.settings.problems import Broken, repeated, taken
from causerie.settings.provider import certificate_rules, is_readable
from causerie.settings.toml import KeyPath

Colour = Annotated[str, values.matching(r"^#[0-9a-fA-F]{6}\Z", "a colour like `#0f6b5c`")]
Contact = Annotated[
    str,
    values.matching(
        r"^(https?://[^\s/]+(/\S*)?|[^@\s:]+@[^@\s:]+)\Z", "an e-mail address, or a web address"
    ),
]


class BrandingSettings(Struct, frozen=True, kw_only=True):
    """Name, colour and links of the pages for people."""

    name: Annotated[str, Meta(min_length=1, max_length=40)] = "Causerie"
    """Name of the service on its pages and in authenticators."""
    accent: Colour | None = None
    """Colour of buttons, links and marks, like `#1a4fb4`. Pages use the nearest shade of it that
    can be read, by day and by night. Unset: green."""
    terms: values.WebAddress | None = None
    """Address of the terms of use."""
    contact: Contact | None = None
    """Whom people write to: an e-mail address, or a page."""
    logos: dict[str, values.Text] = {}
    """Logos in the catalog, by the author of models (what an id begins with) or the name of a
    provider: a file (`.svg`, `.png`, `.webp`) of at most 64 KiB, or `data:image/png;base64,…`.
    Without one, initials."""


UNLIMITED = "unlimited"


class ConsoleSettings(Struct, frozen=True, kw_only=True):
    """The pages for people at `/console`, and the management API at `/api`."""

    enabled: bool = True
    """Whether they are served where a door takes keys of accounts."""
    operator_keys: tuple[values.Digest, ...] = ()
    """Digests of keys by which programs of operators use the management API; `causerie key` makes
    them."""
    api_requests_per_minute: values.Count = 600
    """How often a key may use the management API, or SCIM, within a minute."""
    password_sign_in: Literal["on", "operators", "off"] = "on"
    """Who may sign in with a password: everybody; `operators`, so that somebody can come in when
    the identity provider is away; or nobody. Sessions that began with a password end where it is
    not allowed any more."""
    two_factor: Literal["optional", "required"] = "optional"
    """Whether people who sign in with a password must set up two-factor authentication before
    anything else. Identity providers have their own."""
    session_hours: Annotated[int, Meta(ge=1, le=8760)] = 720
    """How long a session lasts at most."""
    session_idle_hours: Annotated[int, Meta(ge=1, le=8760)] = 168
    """How long a session lasts without a request."""
    sign_up: bool = False
    """Whether anybody may ask for an account, without an invitation. With `mail.host` they get a
    link by mail; without, an operator gives it to them."""
    new_project_budget: Annotated[
        str,
        values.matching(
            r"^(unlimited|[0-9]{1,9}(\.[0-9]{1,9})?)\Z",
            'an amount as text, like `"5"`, or `"unlimited"`',
        ),
    ] = "0"
    """Money that the project of a person who signed up may spend in a month, until an operator
    changes its budgets, like `"5"`. `"0"`: the budget of the policy of projects, and without one
    only what costs nothing; `"unlimited"`: no budget."""
    new_project_credits: values.Money = "0"
    """Credits that the project of a person who signed up begins with, like `"1"`. They bound what
    it spends in all; with them, `new_project_budget` of `"0"` means no budget."""
    projects_per_person: Annotated[int, Meta(ge=0, le=1000)] = 3
    """How many projects somebody may own, and create within a day. Such a project spends nothing
    until it has credits or an operator gives it a budget. Nobody may where the policy of people has
    `personal_projects = "never"`."""
    public_rankings: bool = False
    """Whether everybody may see which models and providers of the catalog are used most, by tokens
    of all projects together. Otherwise only operators see it."""
    public_apps: tuple[values.Text, ...] = ()
    """Apps that public rankings may name, like `["Aider", "chat.example.org"]`, by the names in
    *Usage*. A client can give itself any name, so name those whose makers agreed. Operators see
    all; others see none that is not here."""
    public_status: bool = False
    """Whether everybody may see how the catalog's providers stand, and their uptime of each of the
    last 90 days, at `/console/status`. Otherwise only operators see it."""
    proxies: tuple[values.Network, ...] = ()
    """Addresses or networks of proxies in front of the service, like `10.0.0.0/8`; what they say of
    where a visitor or client comes from is believed."""
    address: values.WebAddress | None = None
    """Address of the service as browsers see it, for links and the check of forms, like
    `https://causerie.example.org`; at other host names there is no console. Unset: as the browser
    sends it."""


class PaymentSettings(Struct, frozen=True, kw_only=True):
    """Sales of credits to projects, by Stripe Checkout or at a page of your own."""

    stripe_key: values.KeyPlace | None = None
    """Where the secret key of a Stripe account is found (`sk_…`, or a restricted one that may
    write Checkout Sessions and read PaymentIntents). Unset: nothing is sold by Stripe."""
    stripe_webhook_secret: values.KeyPlace | None = None
    """Where the signing secret (`whsec_…`) of the webhook is found. It posts to
    `/webhooks/stripe`, with the events `checkout.session.completed`,
    `checkout.session.async_payment_succeeded`, `charge.refunded`,
    `charge.dispute.funds_withdrawn` and `charge.dispute.funds_reinstated`."""
    stripe_url: values.WebAddress = "https://api.stripe.com"
    """Address of Stripe's API."""
    page: values.WebAddress | None = None
    """Page of a shop of your own, where people buy credits; `{project}` in it stands for the id
    of the project. The shop reports a payment by `POST /api/projects/{project}/credits` with an
    operator key."""
    amounts: tuple[values.Money, ...] = ("10", "25", "100")
    """Amounts in dollars that are offered."""
    least: values.Money = "5"
    """Least amount of one purchase."""
    most: values.Money = "1000"
    """Highest amount of one purchase."""
    low_balance: values.Money = "1"
    """Pages warn, and owners get a reminder where `alerts.remind_owners` is on, when the balance
    of a project falls below it."""


def payment_rules(payments: PaymentSettings, address: str | None) -> Iterator[Broken]:
    if (payments.stripe_key is None) != (payments.stripe_webhook_secret is None):
        words = "and `stripe_webhook_secret` go together; set both or none"
        yield Broken(("payments", "stripe_key"), words)
    if payments.stripe_key is not None and address is None:
        words = "needs `console.address`, which people come back to"
        yield Broken(("payments", "stripe_key"), words)
    if is_readable(payments.stripe_url):
        yield Broken(("payments", "stripe_url"), "begins with `http://`; use `https://`")


# Logos that settings name: files or data, never addresses.

_DATA = re.compile(r"data:(image/(?:svg\+xml|png|webp));base64,([A-Za-z0-9+/=]+)")
_TYPES: Mapping[str, str] = {".svg": "image/svg+xml", ".png": "image/png", ".webp": "image/webp"}
_MOST_BYTES = 64 * 1024


def is_data(text: str) -> bool:
    return text.startswith("data:")


def read_logo(text: str) -> tuple[str, bytes]:
    """Return media type and content of a logo; raise :class:`ValueError` with what is wrong."""
    if is_data(text):
        found = _DATA.fullmatch(text)
        if found is None:
            raise ValueError("is no `data:image/png;base64,…`, nor of `svg+xml` or `webp`")
        try:
            media_type, content = found[1], base64.b64decode(found[2], validate=True)
        except binascii.Error as error:
            raise ValueError("is not valid base64") from error
    else:
        file = Path(text)
        media_type = _TYPES.get(file.suffix.lower(), "")
        if not media_type:
            raise ValueError(f'"{file}" is none of {", ".join(_TYPES)}')
        try:
            with file.open("rb") as opened:
                content = opened.read(_MOST_BYTES + 1)
        except OSError as error:
            raise ValueError(f'"{file}" cannot be read: {error.strerror or error}') from error
    if len(content) > _MOST_BYTES:
        raise ValueError(f"has {len(content):,} bytes; a logo has at most {_MOST_BYTES:,}")
    return media_type, content


def logo_rules(logos: Mapping[str, str]) -> Iterator[Broken]:
    for name, text in logos.items():
        try:
            read_logo(text)
        except ValueError as error:
            yield Broken(("branding", "logos", name), str(error))


Domain = Annotated[
    str,
    values.matching(
        r"^(\*|[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)\Z",
        "a domain in lower case like `example.org`, or `*` for all",
    ),
]


class GroupSettings(Struct, frozen=True, kw_only=True):
    """What members of a group of the identity provider are granted at each sign-in."""

    group: values.Text
    """Its name, or id, as the claim has it."""
    project: values.Text | None = None
    """Id of the project (`prj_...`) that they are members of."""
    role: Literal["owner", "admin", "member", "viewer"] = "member"
    """Their role in it."""
    operator: bool = False
    """Whether they are operators of the service."""
    rights: tuple[Literal["read", "people", "configuration", "usage"], ...] = ()
    """Rights over the whole service that they have in place of all that an operator has."""


class IdentityProvider(Struct, frozen=True, kw_only=True):
    """A provider of OpenID Connect that people may sign in to the console with."""

    name: values.DoorName
    """Part of addresses: the provider sends people back to `/console/sign-in/NAME/back`."""
    title: values.Text | None = None
    """Name for people. Unset: the name."""
    issuer: values.WebAddress
    """Address of the issuer, exactly as its own document (`/.well-known/openid-configuration`)
    gives it; `https://`, but on this machine."""
    client_id: values.Text
    """What the provider knows this service as."""
    client_secret: values.KeyPlace | None = None
    """Where its secret is found. Unset: a public client."""
    ca_file: values.FilePath | None = None
    """Certificates to trust (PEM) when the provider is asked. Unset: those that the system
    trusts."""
    scopes: tuple[values.Text, ...] = ("openid", "email", "profile")
    """What is asked for; `openid` is among it."""
    sign_up: bool = False
    """Whether people of `allowed_domains` get an account without an invitation, if their address
    is verified: the provider says so, or `trusted_domains` has its domain."""
    allowed_domains: tuple[Domain, ...] = ()
    """Domains of addresses for `sign_up`, each exactly; `*` allows all."""
    join_accounts: Literal["never", "unclaimed", "all"] = "never"
    """Accounts that a verified address joins at the first sign-in: `unclaimed`, which were created
    beforehand and have neither password nor identity; or `all`, so that who controls the provider
    controls every account. Else their owners link the identity in the profile."""
    trusted_domains: tuple[values.HostName, ...] = ()
    """Domains, each exactly, whose addresses are taken as verified although the provider does not
    say it, as Entra ID does not. Only for an issuer where nobody but your administrators can set an
    address of these domains; never for one of several tenants."""
    email_claim: values.Text = "email"
    """Claim with the address, like `preferred_username`."""
    verified_claim: values.Text | None = None
    """Claim that says whether the address is verified. Unset: `email_verified` where `email_claim`
    is `email`, else none."""
    name_claim: values.Text = "name"
    """Claim with the name for people."""
    groups_claim: values.Text = "groups"
    """Claim that lists the groups which somebody is in."""
    groups: tuple[GroupSettings, ...] = ()
    recheck_minutes: Annotated[int, Meta(ge=5, le=43_200)] | None = None
    """How long a session lasts until the provider is asked again who its person is and which groups
    they are in, of which they notice nothing while the provider knows them. Unset: as long as any
    session."""
    scim_keys: tuple[values.Digest, ...] = ()
    """Digests of keys by which the provider's directory creates, changes and disables people, and
    moves them between groups, by SCIM at `/scim/v2`; `causerie key` makes them. With one, groups
    come from SCIM, and `groups_claim` means nothing."""

    @property
    def email_verification(self) -> str | None:
        """Return the name of the claim that tells whether the address is verified, or ``None``."""
        usual = "email_verified" if self.email_claim == "email" else None
        return self.verified_claim or usual


def identity_rules(
    providers: Sequence[IdentityProvider], console: ConsoleSettings
) -> Iterator[Broken]:
    if console.password_sign_in != "on" and not providers:
        words = "needs `identity_providers`, or nobody could sign in"
        yield Broken(("console", "password_sign_in"), words, None, (("identity_providers",),))
    yield from taken(
        (("identity_providers", index, "name"), each.name) for index, each in enumerate(providers)
    )
    for index, provider in enumerate(providers):
        yield from _find_identity_provider_problems(("identity_providers", index), provider)


def _find_identity_provider_problems(at: KeyPath, provider: IdentityProvider) -> Iterator[Broken]:
    if (wrong := _find_issuer_problem(provider.issuer)) is not None:
        yield Broken((*at, "issuer"), wrong)
    yield from certificate_rules((*at, "ca_file"), provider.ca_file)
    if provider.name == "code":
        yield Broken((*at, "name"), "is the page for two-factor codes; choose another")
    if "openid" not in provider.scopes:
        yield Broken((*at, "scopes"), "lacks `openid`, without which nobody is told who it is")
    if provider.sign_up and not provider.allowed_domains:
        yield Broken((*at, "sign_up"), "needs `allowed_domains`; `*` in it allows all")
    if provider.allowed_domains and not provider.sign_up:
        yield Broken((*at, "allowed_domains"), "means nothing without `sign_up = true`")
    if provider.scim_keys and provider.join_accounts == "never":
        words = 'lets nobody in whom the directory creates; with `scim_keys` set `"unclaimed"`'
        yield Broken((*at, "join_accounts"), words, None, ((*at, "scim_keys"),))
    for index, each in enumerate(provider.groups):
        if each.project is None and not each.operator and not each.rights:
            words = "gives nothing; it needs `project`, `rights` or `operator = true`"
            yield Broken((*at, "groups", index), words)


def _find_issuer_problem(issuer: str) -> str | None:
    try:
        parts = urlsplit(issuer)
        _ = parts.hostname, parts.port
    except ValueError:
        return "is no address"
    if parts.query or parts.fragment or parts.username is not None:
        return "has more than scheme, host and path"
    if is_readable(issuer):
        words = "anybody on the way could sign in as everybody; use `https://`"
        return f"begins with `http://`: {words}"
    return None


class PolicySettings(Struct, frozen=True, kw_only=True):
    """Limits and rights that each new person, or each new project, begins with.

    Operators change them for single ones. Needs keys of accounts."""

    name: Literal["people", "projects"]
    """`people`: each new person, in all projects; `projects`: each new project."""
    budget: values.Money | None = None
    """Money that each may spend in a period, like `"25"`. Unset: no budget."""
    period: Literal["day", "week", "month", "never"] = "month"
    """When the budget begins anew, in UTC."""
    soft: bool = False
    """Whether the budget refuses nothing and is only notified."""
    limits: values.LimitSettings = values.LimitSettings()
    models: tuple[values.ModelPattern, ...] | None = None
    """Models that each may use; one with `*` at the end stands for all that begin so. Unset:
    all."""
    doors: tuple[values.DoorName, ...] | None = None
    """Doors that each may use. Unset: all."""
    providers: tuple[values.DoorName, ...] | None = None
    """Providers whose models each may use; `causerie` stands for models of this service. Unset:
    all."""
    prompt_price: values.Money | None = None
    """Highest price of 1M input tokens. Unset: any."""
    completion_price: values.Money | None = None
    """Highest price of 1M output tokens. Unset: any."""
    personal_projects: Literal["sign_up", "never"] = "sign_up"
    """For `people`: with `sign_up`, people who sign up get a project of their own; with `never`
    they come only into projects of their groups or by invitation."""
    personal_project_name: Annotated[str, Meta(min_length=1, max_length=100)] = "{name}'s project"
    """For `people`: its name; `{name}` and `{email}` are replaced by theirs."""
    role: Literal["owner", "admin", "member", "viewer"] = "owner"
    """For `people`: their role in it. Only owners and admins invite others and turn on request
    logging."""
    request_logging: Literal["admins", "owners", "nobody"] = "admins"
    """For `projects`, old ones too: who may turn on request logging: `admins` (owners, admins and
    management keys), `owners`, or `nobody`, and then nothing is logged."""


POLICIES = {each: PolicySettings(name=each) for each in ("people", "projects")}
_POLICY_OF_SETTING = {
    "personal_projects": "people",
    "personal_project_name": "people",
    "role": "people",
    "request_logging": "projects",
}


def policy_rules(policies: Sequence[PolicySettings]) -> Iterator[Broken]:
    """Yield problems of policies that are listed twice or set what only the other kind has."""
    places = [(("policies", index, "name"), each.name) for index, each in enumerate(policies)]
    for at, name, other in repeated(places):
        yield Broken(at, f'"{name}" is there already; join both', other)
    for index, each in enumerate(policies):
        for name, kind in _POLICY_OF_SETTING.items():
            if each.name != kind and getattr(each, name) != getattr(POLICIES[kind], name):
                yield Broken(("policies", index, name), f"is a setting of the policy of {kind}")


def policy_of(policies: Sequence[PolicySettings], name: str) -> PolicySettings:
    """Return the configured policy of people or of projects, or its default if there is none."""
    return next((each for each in policies if each.name == name), POLICIES[name])
