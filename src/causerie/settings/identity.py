"""Settings of providers that people may sign in with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from causerie.settings.certificates import wrong_certificates
from causerie.settings.lines import Path as KeyPath
from causerie.settings.problems import Broken
from causerie.settings.values import PLACES, DoorName, KeyPlace, Text, WebAddress

Domain = Annotated[
    str,
    Meta(
        pattern=r"^(\*|[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)\Z",
        extra={"words": "a domain in lower case like `example.org`, or `*` for all"},
    ),
]


class IdentityGroup(Struct, frozen=True, kw_only=True):
    """Grant to the members of a group of the identity provider, at each sign-in."""

    group: Annotated[Text, Meta(description="Its name, or id, as the claim has it.")]
    project: Annotated[
        Text | None, Meta(description="Id of the project (`prj_...`) that they are members of.")
    ] = None
    role: Annotated[
        Literal["owner", "admin", "member", "viewer"], Meta(description="Their role in it.")
    ] = "member"
    operator: Annotated[bool, Meta(description="Whether they are operators of the service.")] = (
        False
    )


class IdentityProvider(Struct, frozen=True, kw_only=True):
    """A provider of OpenID Connect that people may sign in to the console with."""

    name: Annotated[
        DoorName,
        Meta(
            description="Part of addresses: the provider sends people back to "
            "`/console/sign-in/NAME/back`."
        ),
    ]
    title: Annotated[Text | None, Meta(description="Name for people. Unset: the name.")] = None
    issuer: Annotated[
        WebAddress,
        Meta(
            description="Address of the issuer, exactly as its own document "
            "(`/.well-known/openid-configuration`) gives it; `https://`, but on this machine."
        ),
    ]
    client_id: Annotated[Text, Meta(description="What the provider knows this service as.")]
    client_secret: Annotated[
        KeyPlace | None, Meta(description="Where its secret is found. Unset: a public client.")
    ] = None
    ca_file: Annotated[
        Text | None,
        Meta(
            description="Certificates to trust (PEM) when the provider is asked. Unset: those that "
            "the system trusts."
        ),
    ] = None
    scopes: Annotated[
        tuple[Text, ...], Meta(description="What is asked for; `openid` is among it.")
    ] = ("openid", "email", "profile")
    sign_up: Annotated[
        bool,
        Meta(
            description="Whether people of `allowed_domains` get an account without an invitation, "
            "if the provider says that their address is verified."
        ),
    ] = False
    allowed_domains: Annotated[
        tuple[Domain, ...],
        Meta(description="Domains of addresses for `sign_up`, each exactly; `*` allows all."),
    ] = ()
    groups_claim: Annotated[
        Text, Meta(description="Claim that lists the groups which somebody is in.")
    ] = "groups"
    groups: Annotated[
        tuple[IdentityGroup, ...],
        Meta(description="Groups that give a role in a project, or make operators."),
    ] = ()


def identity_rules(providers: Sequence[IdentityProvider]) -> Iterator[Broken]:
    taken: dict[str, KeyPath] = {}
    for index, provider in enumerate(providers):
        at: KeyPath = ("identity_providers", index)
        other = taken.setdefault(provider.name, at)
        if other is not at:
            words = f'"{provider.name}" is taken; names are unique'
            yield Broken((*at, "name"), words, (*other, "name"))
        yield from _provider(at, provider)


def _provider(at: KeyPath, provider: IdentityProvider) -> Iterator[Broken]:
    if (wrong := _wrong_issuer(provider.issuer)) is not None:
        yield Broken((*at, "issuer"), wrong)
    if (wrong := wrong_certificates(provider.ca_file)) is not None:
        yield Broken((*at, "ca_file"), wrong)
    if provider.name == "code":
        yield Broken((*at, "name"), "is the page for two-factor codes; choose another")
    if "openid" not in provider.scopes:
        yield Broken((*at, "scopes"), "lacks `openid`, without which nobody is told who it is")
    if provider.sign_up and not provider.allowed_domains:
        yield Broken((*at, "sign_up"), "needs `allowed_domains`; `*` in it allows all")
    if provider.allowed_domains and not provider.sign_up:
        yield Broken((*at, "allowed_domains"), "means nothing without `sign_up = true`")
    yield from _groups(at, provider)
    yield from _secret(at, provider)


def _groups(at: KeyPath, provider: IdentityProvider) -> Iterator[Broken]:
    for index, each in enumerate(provider.groups):
        if each.project is None and not each.operator:
            words = "gives nothing; it needs `project`, or `operator = true`"
            yield Broken((*at, "groups", index), words)


def _secret(at: KeyPath, provider: IdentityProvider) -> Iterator[Broken]:
    secret = provider.client_secret
    if secret is not None:
        places = [name for name in ("env", "file", "command") if getattr(secret, name) is not None]
        if len(places) != 1:
            found = " and ".join(f"`{each}`" for each in places) or "nothing"
            place: KeyPath = (*at, "client_secret")
            yield Broken(place, f"has {found}; it takes {PLACES}", relies_on=(place,))


def _wrong_issuer(issuer: str) -> str | None:
    try:
        parts = urlsplit(issuer)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        return "is no address"
    if parts.query or parts.fragment or parts.username is not None:
        return "has more than scheme, host and path"
    if parts.scheme == "http" and not _is_here(host):
        return (
            "begins with `http://`: anybody on the way could sign in as everybody; use `https://`"
        )
    return None


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
