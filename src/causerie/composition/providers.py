"""Providers that others run, with their connections, certificates and keys.

One whose settings and secrets are the same after a reload stays, with its
connections; another one takes the place of one that has changed, whose
connections end with the replies on them.

Keys that change are read again from files and commands. The present key stays in use until there
is another one, or the lifetime of a command's key is over. A key is replaced between two requests;
those under way keep the one that they were sent with."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from time import monotonic

import msgspec
import structlog

from causerie.composition.control import WorkerPlace
from causerie.http.addresses import InsideHosts, IpNetwork
from causerie.http.client import HttpClient, Reach
from causerie.http.tasks import happens, owned
from causerie.observe.alerts import AlertKind, Condition
from causerie.protocol.alike import alike
from causerie.providers.dialects import DIALECTS
from causerie.providers.provider import Deadlines, Provider, RequestSlots
from causerie.routing.target_state import Check
from causerie.settings import provider as described
from causerie.settings.credentials import Credentials, secret_value
from causerie.settings.doors import has_accounts
from causerie.settings.problems import Problem, SettingsError
from causerie.settings.provider import HealthCheckSettings, TlsSettings, certificate_fault
from causerie.settings.tree import ServerSettings, Settings
from causerie.settings.values import Secret

FILE_SECONDS = 5.0
"""Seconds from one look at a file to the next."""
_SHARE = 0.8  # of the lifetime of a key, after which the next one is fetched
_RETRIES = 20  # in a lifetime, after failures
_FASTEST_RETRY, _SLOWEST_RETRY = 0.5, 60.0  # seconds
_REJECTED_SECONDS = 30.0  # in which rejections of keys run a command once
_NEVER = float("inf")

# Apart from the threads of the loop: names of hosts are looked up there, and a command may hang.
_threads = ThreadPoolExecutor(4, thread_name_prefix="keys")

log = structlog.get_logger(__name__)


def renewal_seconds(place: Secret) -> float:
    """Return after how many seconds to read a key again: infinity if only after a rejection."""
    if place.file is not None:
        return FILE_SECONDS
    return _NEVER if place.lifetime is None else _SHARE * place.lifetime


class ProviderKey:
    """Renews the key of one provider, which is read from a file or from a command."""

    def __init__(self, provider: Provider, place: Secret) -> None:
        self.provider = provider
        self.problem = ""
        """Why the last try to read it failed; empty if it did not."""
        self._key_source = place
        self._renewal_interval = renewal_seconds(place)
        self._key_valid_until = monotonic() + (place.lifetime or _NEVER)
        self._forced_read_at = -_NEVER  # time of the last renewal after a rejection
        self._is_renewal_loop_alive = False
        self._renewal_request_event, self._key_read_event = asyncio.Event(), asyncio.Event()
        self._key_read_event.set()
        provider.key_renewal = self

    @property
    def expired(self) -> bool:
        return monotonic() >= self._key_valid_until

    def use(self, key: str) -> None:
        """Use a key that was read just now."""
        if key != self.provider.credential:
            log.info("key of a provider renewed", provider=self.provider.name)
            self.provider.use(key)
        self.problem = ""
        self._renewal_interval = renewal_seconds(self._key_source)
        self._key_valid_until = monotonic() + (self._key_source.lifetime or _NEVER)

    async def renewed(self, rejected: str | None) -> bool:
        if self.provider.credential != rejected:
            return True
        if self._is_renewal_loop_alive and monotonic() - self._forced_read_at >= _REJECTED_SECONDS:
            self._forced_read_at = monotonic()
            self._key_read_event.clear()
            self._renewal_request_event.set()
        await self._key_read_event.wait()
        return self.provider.credential != rejected

    async def run(self) -> None:
        """Read the key again and again: before its lifetime is over, and when it was rejected."""
        self._is_renewal_loop_alive = True
        try:
            while True:
                await happens(
                    self._renewal_request_event,
                    None if self._renewal_interval == _NEVER else self._renewal_interval,
                )
                self._renewal_request_event.clear()
                await self._renew_key_once()
                self._key_read_event.set()
        finally:
            self._is_renewal_loop_alive = False
            self._key_read_event.set()

    async def _renew_key_once(self) -> None:
        try:
            loop = asyncio.get_running_loop()
            self.use(await loop.run_in_executor(_threads, secret_value, self._key_source, {}))
        except (ValueError, OSError) as error:
            if self._key_source.lifetime is not None:
                pause = min(self._key_source.lifetime / _RETRIES, _SLOWEST_RETRY)
                self._renewal_interval = max(pause, _FASTEST_RETRY)
            if self._key_source.file is None or not self.problem:  # of a file every few seconds
                log.warning(
                    "key of a provider not renewed", provider=self.provider.name, reason=str(error)
                )
            self.problem = str(error)


@asynccontextmanager
async def renewing(keys: Iterable[ProviderKey]) -> AsyncIterator[None]:
    """Renew these keys during the block."""
    async with AsyncExitStack() as stack:
        for key in keys:
            _ = await stack.enter_async_context(owned(key.run()))
        yield


def key_conditions(keys: Iterable[ProviderKey]) -> Iterator[Condition]:
    """Yield alert conditions for provider keys that could not be renewed."""
    for key in keys:
        if key.problem:
            name, left = key.provider.name, "so it gets no requests"
            if not key.expired:
                left = "so the present one stays in use"
            yield Condition(
                f"key:{name}",
                AlertKind.PROVIDER,
                f"The key of provider {name} cannot be renewed, {left}: {key.problem}",
                {"provider": name, "reason": key.problem},
                level=2 if key.expired else 1,
            )


# Connections and certificates.


def tls_context(tls: TlsSettings) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca_file)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.client_cert is not None:
        context.load_cert_chain(tls.client_cert, tls.client_key)
    return context


def tls_digest(tls: TlsSettings) -> bytes:
    """Return a digest of the TLS files' contents, to detect renewal; raise :class:`OSError`."""
    digest = hashlib.sha256()
    for file in (tls.ca_file, tls.client_cert, tls.client_key):
        digest.update(hashlib.sha256(Path(file).read_bytes() if file else b"").digest())
    return digest.digest()


@dataclass(frozen=True, slots=True)
class ConnectedProvider:
    """A provider with its connections; ``recipe`` is a digest of the settings it was made from."""

    provider: Provider
    client: HttpClient
    recipe: bytes
    reach: Reach = field(default_factory=Reach, repr=False)
    changing_key: ProviderKey | None = field(default=None, repr=False)

    @property
    def key(self) -> str | None:
        """Return the key that is sent to the provider."""
        return self.provider.credential


def connected(
    settings: Settings,
    credentials: Credentials,
    before: Mapping[str, ConnectedProvider],
    aside: Callable[[], Mapping[str, str]] | None = None,
    place: WorkerPlace | None = None,
) -> Mapping[str, ConnectedProvider]:
    """Return the connected providers by name; unchanged ones of ``before`` are reused.

    ``aside`` gives further headers of chat requests. With a ``place`` a worker gets its share of
    `max_concurrent`. Raises :class:`SettingsError` for certificates that cannot be used.
    """
    made: dict[str, ConnectedProvider] = {}
    problems: list[Problem] = []
    metered, networks = has_accounts(settings), private_networks(settings.server)
    for index, written in enumerate(settings.providers):
        one = written
        if one.always_stream is None:
            always = metered or DIALECTS[one.dialect].streams
            one = msgspec.structs.replace(one, always_stream=always)
        key, proxy = credentials.keys.get(one.name), credentials.proxies.get(one.name)
        try:
            recipe = _digest_connection_settings(one, key, proxy, settings.server.private_networks)
            way = reach(one, proxy, networks)
            kept = before.get(one.name)
            if kept is not None and kept.recipe == recipe:
                made[one.name] = kept
            else:
                made[one.name] = _connect_provider(one, key, way, recipe, place)
                made[one.name].provider.more_headers = aside
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            reason = certificate_fault(error) if isinstance(error, OSError) else str(error)
            words = f"cannot be used: {reason}"
            problems.append(Problem("", f"providers[{index}].tls", words))
    if problems:
        raise SettingsError(problems)
    return made


def checks(settings: Settings, providers: Mapping[str, ConnectedProvider]) -> Sequence[Check]:
    found = []
    for one in settings.providers:
        health, ask = one.health, providers[one.name].provider.check
        mine = [target for target in settings.targets if target.provider == one.name]
        listing = any("*" in target.model for target in mine)
        if health.path:
            check = partial(ask, health.path, health.timeout_seconds, listing=listing)
            targets = sorted({target.name for target in mine})
            found.append(Check(check, health.interval_seconds, targets, at_start=listing))
    return found


async def close(providers: Sequence[ConnectedProvider]) -> None:
    for one in providers:
        await one.client.close()


def _connect_provider(
    settings: described.ProviderSettings,
    key: str | None,
    reach_options: Reach,
    recipe_digest: bytes,
    place: WorkerPlace | None,
) -> ConnectedProvider:
    client = HttpClient(settings.base_url, reach_options)
    dialect = replace(DIALECTS[settings.dialect], streams=bool(settings.always_stream))
    if settings.api_version is not None:
        dialect = replace(dialect, api=replace(dialect.api, version=settings.api_version))
    if settings.fetches_images is not None:
        dialect = replace(dialect, fetches=settings.fetches_images)
    if settings.private_image_hosts:
        dialect = replace(dialect, inside=InsideHosts.parse(settings.private_image_hosts))
    if settings.passes or settings.passes_privileged:
        dialect = dialect.passing(settings.passes, settings.passes_privileged)
    provider = Provider(
        settings.name,
        client,
        dialect,
        credential=key,
        deadlines=alike(Deadlines, settings.timeouts),
        slots=RequestSlots(
            settings.max_concurrent if place is None else place.share(settings.max_concurrent)
        ),
    )
    provider.max_reply_bytes, provider.retries = settings.max_reply_bytes, settings.retries
    changing = _find_renewable_key_source(settings)
    key_renewal = None if changing is None else ProviderKey(provider, changing)
    return ConnectedProvider(provider, client, recipe_digest, reach_options, key_renewal)


def _find_renewable_key_source(settings: described.ProviderSettings) -> Secret | None:
    return None if settings.key is None or settings.key.env is not None else settings.key


def private_networks(server: ServerSettings) -> Sequence[IpNetwork] | None:
    """Return the networks that may be reached apart from public addresses; ``None``: all."""
    if server.private_networks is None:
        return None
    return tuple(ip_network(each) for each in server.private_networks)


def reach(
    one: described.ProviderSettings, proxy: str | None, networks: Sequence[IpNetwork] | None = None
) -> Reach:
    """Return a provider's connection options; raise :class:`OSError` for unusable certificates.

    ``proxy`` is its address with secrets; only public addresses and ``networks`` are reached.
    """
    return Reach(
        tls=tls_context(one.tls) if one.base_url.startswith("https://") else None,
        server_name=one.tls.server_name,
        proxy=one.proxy if isinstance(one.proxy, str) else proxy,
        connect_seconds=one.timeouts.connect,
        networks=networks,
    )


def _digest_connection_settings(
    settings: described.ProviderSettings,
    key: str | None,
    proxy: str | None,
    networks: Sequence[str] | None,
) -> bytes:
    # Certificates count by their contents, so that a reload takes renewed ones. A key that changes
    # does not count: it is put in its place.
    key = key if _find_renewable_key_source(settings) is None else None
    plain = msgspec.structs.replace(settings, models=(), health=HealthCheckSettings())
    digest = hashlib.sha256(msgspec.json.encode([plain, key, proxy, networks]))
    digest.update(tls_digest(settings.tls))
    return digest.digest()
