"""Settings of chat providers, and the rules for addresses, secrets and certificates."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from causerie.http.addresses import Address
from causerie.protocol.request import Operation
from causerie.settings import values
from causerie.settings.problems import Broken
from causerie.settings.toml import KeyPath


def certificate_rules(path: KeyPath, file: str | None) -> Iterator[Broken]:
    """Yield an error if the file of certificates to trust cannot be used."""
    try:
        if file is not None and not Path(file).is_file():
            yield Broken(path, f'there is no file "{file}"')
        elif file is not None:
            ssl.create_default_context(cafile=file)
    except OSError as error:  # ssl.SSLError is one
        yield Broken(path, f"cannot be used: {certificate_fault(error)}")


def certificate_fault(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is no PEM file").replace("_", " ").lower()
    return error.strerror or str(error)


class TimeoutSettings(Struct, frozen=True, kw_only=True):
    """Longest waits for a provider, in seconds; all but `connect` are exact to 0.25 s."""

    connect: Annotated[float, Meta(gt=0, le=600)] = 5.0
    """Until there is a connection."""
    first_token: values.Patience = 120.0
    """From a request to be streamed to its first content."""
    between_chunks: values.Patience = 60.0
    """From one piece of content to the next."""
    total: values.Patience = 1800.0
    """Until the end of a reply."""


class TlsSettings(Struct, frozen=True, kw_only=True):
    """How the server's TLS certificate is checked, and the client certificate that we show."""

    ca_file: values.TrustedCertificates = None
    client_cert: values.FilePath | None = None
    """Our own certificate (PEM), where the other side wants one."""
    client_key: values.FilePath | None = None
    """The key of `client_cert` (PEM). Unset: it stands in the same file."""
    server_name: values.HostName | None = None
    """Name that the certificate must have. Unset: the host of the address."""
    verify: bool = True
    """`false` accepts any certificate, also one of an attacker."""


class HealthCheckSettings(Struct, frozen=True, kw_only=True):
    """Health check of the provider, in addition to the requests it gets."""

    path: Annotated[
        str, values.matching(r"^(/[!-~]*)?\Z", "a path like `/models`, or an empty text")
    ] = "/models"
    """Path below `base_url` that is asked for; empty: it is not asked."""
    interval_seconds: Annotated[float, Meta(ge=0.1, le=86_400)] = 15.0
    """From one time to the next."""
    timeout_seconds: values.Patience = 5.0
    """After so long without an answer it is taken to be down."""


class ProviderModelSettings(Struct, frozen=True, kw_only=True):
    """Capabilities of one model of the provider, as `causerie probe` found them.

    Unset values are not known, and requests that use them are let through.
    """

    id: values.Text
    """Id of the model at the provider."""
    context_length: values.Count | None = None
    """Tokens that prompt and output may have."""
    operations: Annotated[tuple[Operation, ...], Meta(min_length=1)] | None = None
    """What it serves: `chat`, `embeddings`, `rerank`, `completions`; other requests go elsewhere or
    get status 400, and the catalog lists it so."""
    supported_parameters: tuple[values.Text, ...] | None = None
    """Parameters that it honours; a request with another goes elsewhere."""
    claims: values.ClaimSettings = values.ClaimSettings()
    thinking: Literal["switch", "always", "never"] | None = None
    """Whether it thinks, and whether that can be switched."""
    continues: bool | None = None
    """Whether it can go on with a reply that broke off."""
    probed: values.Day | None = None
    """When that was found out."""


class DataPolicySettings(Struct, frozen=True, kw_only=True):
    """Statements of the provider about its data, for its catalog page; they change no routing.

    Unset values are not known, and not shown.
    """

    about: values.Text | None = None
    """A sentence about it."""
    retention: values.Text | None = None
    """How long it keeps what it is sent, like `30 days` or `none`."""
    trains: bool | None = None
    """Whether it trains models with what it is sent."""
    place: values.Text | None = None
    """Where its servers are, like `Germany`."""
    page: values.WebAddress | None = None
    """Its own page about this."""


ApiVersion = Annotated[
    str, values.matching(r"^[0-9A-Za-z.-]{1,40}\Z", "a version like `2024-10-21`")
]


class ProviderSettings(Struct, frozen=True, kw_only=True):
    """A chat provider that others run, and how requests are sent to it."""

    name: values.DoorName
    """Lower-case name, for targets, headers and log lines."""
    base_url: values.WebAddress
    """Base URL, to which `/chat/completions` is added; `known` has one."""
    known: values.Text | None = None
    """A [known provider](providers.md), like `openai`: fills in `name`, `base_url` and `dialect`
    where they are not set."""
    dialect: values.Text = "generic"
    """What kind of server it is; see [dialects](dialects.md)."""
    api_version: ApiVersion | None = None
    """The `api-version` of requests, for dialect `azure-deployments`."""
    key: values.KeyPlace | None = None
    """Where the key is found that is sent there. Unset: none is sent. That of a `file`, and that of
    a `command` with a `lifetime`, is [read again](../guides/changing-keys.md) while the service
    runs."""
    price_list: str | None = None
    """Whose [list prices](../guides/billing.md#list-prices) its models have, like `openai`. Unset:
    as its address says; an empty text: nobody's."""
    max_concurrent: values.Count | None = None
    """Most requests there at the same time. Unset: as many as come."""
    fetches_images: bool | None = None
    """Whether images may be given to it by `https://` addresses, which it fetches itself. Unset:
    as its dialect says; a server in your own network could be made to read what only this network
    may."""
    private_image_hosts: tuple[values.Text, ...] = ()
    """Hosts of your own network from which it may fetch images all the same: names, `".suffix"`,
    addresses or networks. All other private, link-local, loopback and single-label hosts are
    refused before it sees them."""
    passes: tuple[values.FieldPath, ...] = ()
    """Fields of requests that it gets in addition to those that its dialect lists, like `"top_a"`
    or `"messages.content.cache_control"`; see [fields](dialects.md#fields)."""
    passes_privileged: tuple[values.FieldPath, ...] = ()
    """Fields that it gets although they choose a model, provider, price, plugin, limit, transport
    or address. Nothing here prices or limits what they choose: it is on your bill; see
    [fields](dialects.md#privileged-fields)."""
    always_stream: bool | None = None
    """Whether replies are streamed from it also to requests that are not, so that work on them
    stops when their client leaves, and is [charged](../guides/billing.md#leaving-early) as far as
    it went. Unset: where a door takes keys of accounts, and where its dialect says so."""
    proxy: Annotated[
        values.WebAddress | values.Secret | None,
        Meta(
            extra={"words": "an address that begins with `http://` or `https://`, or where it is"}
        ),
    ] = None
    """HTTP proxy to go through. One whose address holds a password is named by `{ env = "NAME" }`,
    `{ file = "PATH" }` or `{ command = ["PROGRAM", ...] }`."""
    max_reply_bytes: values.Count = 64 * 1024 * 1024
    """Most bytes of one streamed reply, as they come and decompressed; a longer one breaks off. A
    reply that is not streamed has at most 16 MiB."""
    retries: Annotated[int, Meta(ge=0, le=5)] = 2
    """How often a failed request is sent again, if no other target answers and nothing of the reply
    was sent. Failures are 5xx, no connection and an unreadable reply. Each pause is longer than the
    one before. At most four attempts are made in all."""
    timeouts: TimeoutSettings = TimeoutSettings()
    tls: TlsSettings = TlsSettings()
    health: HealthCheckSettings = HealthCheckSettings()
    policy: DataPolicySettings = DataPolicySettings()
    models: tuple[ProviderModelSettings, ...] = ()


def is_loopback(host: str) -> bool:
    """Return true if ``host`` is a loopback address or ``localhost``."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def is_readable(url: str) -> bool:
    """Return true if the URL is unencrypted (``http://``) and leads to another machine."""
    return url.startswith("http://") and not is_loopback(urlsplit(url).hostname or "")


def address_rules(path: KeyPath, url: str, instead: str) -> Iterator[Broken]:
    """Yield an error for an unusable URL, or for one with a password, with advice ``instead``."""
    try:
        address = Address.parse(url)
    except ValueError as error:
        yield Broken(path, f"cannot be used: {error}")
        return
    if address.authorization:
        yield Broken(path, f"holds a user name or a password; take it out and {instead}")


def secret_rules(path: KeyPath, secret: values.Secret) -> Iterator[Broken]:
    """Yield an error unless a secret has exactly one place, and only options of that place."""
    named = [name for name in ("env", "file", "command") if getattr(secret, name) is not None]
    if len(named) != 1:
        words = " and ".join(f"`{one}`" for one in named) or "nothing"
        yield Broken(path, f"has {words}; it takes {values.PLACES}", relies_on=(path,))
    elif secret.command is None and (secret.environment or secret.lifetime is not None):
        yield Broken(path, "has `environment` or `lifetime`, which belong to a `command`")
    elif secret.lifetime is not None and (path[0], path[-1]) != ("providers", "key"):
        yield Broken(path, "has a `lifetime`; only keys of providers change while the service runs")


def tls_rules(path: KeyPath, tls: TlsSettings, url: str) -> Iterator[Broken]:
    """Yield errors of unusable certificates, and of TLS settings for a plain ``http://`` URL."""
    yield from certificate_rules((*path, "ca_file"), tls.ca_file)
    missing = set()
    for name in ("client_cert", "client_key"):
        file = getattr(tls, name)
        if file is not None and not Path(file).is_file():
            missing.add(name)
            yield Broken((*path, name), f'there is no file "{file}"')
    if tls.client_key is not None and tls.client_cert is None:
        yield Broken((*path, "client_key"), "needs `client_cert`")
    if tls.client_cert is not None and not missing:
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_cert_chain(tls.client_cert, tls.client_key)
        except OSError as error:  # ssl.SSLError is one
            yield Broken((*path, "client_cert"), f"cannot be used: {certificate_fault(error)}")
    if tls.ca_file is not None and not tls.verify:
        yield Broken((*path, "verify"), "is `false`, so `ca_file` means nothing; remove one")
    if tls != TlsSettings() and url.startswith("http://"):
        yield Broken(path, "means nothing to an address that begins with http://")
