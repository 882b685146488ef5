"""Keys of providers that change while the service runs: read again from files and commands.

The present key stays in use until there is another one, or the lifetime of a command's key is
over. A key is replaced between two requests; those under way keep the one that they were sent with.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from time import monotonic

import structlog

from causerie.http.tasks import owned
from causerie.observe.alerts import AlertKind, Condition
from causerie.providers.provider import Provider
from causerie.settings.credentials import secret_value
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
    """Return after how many seconds a key is read again; infinity: only after a rejection."""
    if place.file is not None:
        return FILE_SECONDS
    return _NEVER if place.lifetime is None else _SHARE * place.lifetime


class ProviderKey:
    """The key of one provider, whose place is a file or a command."""

    def __init__(self, provider: Provider, place: Secret) -> None:
        self.provider = provider
        self.problem = ""
        """Why the last try to read it failed; empty if it did not."""
        self._place = place
        self._pause = renewal_seconds(place)
        self._valid_until = monotonic() + (place.lifetime or _NEVER)
        self._rejected = -_NEVER  # time of the last renewal after a rejection
        self._runs = False
        self._wanted, self._read = asyncio.Event(), asyncio.Event()
        self._read.set()
        provider.key_renewal = self

    @property
    def expired(self) -> bool:
        return monotonic() >= self._valid_until

    def use(self, key: str) -> None:
        """Use a key that was read just now."""
        if key != self.provider.credential:
            log.info("key of a provider renewed", provider=self.provider.name)
            self.provider.use(key)
        self.problem = ""
        self._pause = renewal_seconds(self._place)
        self._valid_until = monotonic() + (self._place.lifetime or _NEVER)

    async def renewed(self, rejected: str | None) -> bool:
        if self.provider.credential != rejected:
            return True
        if self._runs and monotonic() - self._rejected >= _REJECTED_SECONDS:
            self._rejected = monotonic()
            self._read.clear()
            self._wanted.set()
        await self._read.wait()
        return self.provider.credential != rejected

    async def run(self) -> None:
        """Read the key again and again: before its lifetime is over, and when it was rejected."""
        self._runs = True
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if self._pause == _NEVER else self._pause):
                        await self._wanted.wait()
                self._wanted.clear()
                await self._read_again()
                self._read.set()
        finally:
            self._runs = False
            self._read.set()

    async def _read_again(self) -> None:
        try:
            loop = asyncio.get_running_loop()
            self.use(await loop.run_in_executor(_threads, secret_value, self._place, {}))
        except (ValueError, OSError) as error:
            if self._place.lifetime is not None:
                pause = min(self._place.lifetime / _RETRIES, _SLOWEST_RETRY)
                self._pause = max(pause, _FASTEST_RETRY)
            if self._place.file is None or not self.problem:  # of a file every few seconds
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
    """Yield conditions for keys that could not be renewed."""
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
