"""Start and stop of a service: listen, load, say when it is ready, serve until a stop.

The address is taken first, so that health can be asked while models load and a
port in use is known before anything is fetched. Knows nothing of how engines are made.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

import structlog

from causerie.engines.base import EngineFailed, EngineStatus
from causerie.engines.fleet import NOT_LOADED, Fleet
from causerie.engines.weights import Progress
from causerie.http.application import Edge
from causerie.http.connection import Listen
from causerie.http.server import Bound, listening_socket, serve
from causerie.http.tasks import owned
from causerie.settings.tree import Settings


@contextmanager
def hangups() -> Iterator[asyncio.Event]:
    """Yield an event that each SIGHUP sets while the block runs; none ends the process."""
    wanted = asyncio.Event()
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is None or threading.current_thread() is not threading.main_thread():
        yield wanted
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(hangup, wanted.set)
    try:
        yield wanted
    finally:
        loop.remove_signal_handler(hangup)


async def reloaded(hangup: asyncio.Event, reload: Callable[[], Awaitable[object]]) -> None:
    """Call ``reload`` for each SIGHUP; several at once are one.

    After its terminal was closed the service ends instead.
    """
    terminal = _get_stderr_terminal_descriptor()
    while True:
        await hangup.wait()
        hangup.clear()
        if terminal is not None:
            try:
                os.tcgetpgrp(terminal)
            except OSError:  # it was closed
                os.kill(os.getpid(), signal.SIGTERM)
                continue
        await reload()


def _get_stderr_terminal_descriptor() -> int | None:
    try:
        number = sys.stderr.fileno()
    except (OSError, ValueError):  # there is none, or a test has replaced it
        return None
    return number if os.isatty(number) else None


log = structlog.get_logger(__name__)

_REFRESH_SECONDS = 0.1
_ALLOCATIONS = 20_000  # between two looks at the youngest objects
_OWN_MAPPING_BYTES = 1024 * 1024  # of a block from which on it has a mapping of its own
_M_MMAP_THRESHOLD = -3  # of glibc's malloc.h


class StartAnnouncer(Protocol):
    """Observer of the start and the stop; ``download`` reports the progress of fetched files."""

    settings: Settings

    @property
    def download(self) -> Progress: ...

    def first_link(self, token: str) -> None:
        """Report the token by which the owner creates the first account, once."""

    def ready(self, host: str, port: int) -> None: ...

    # What a subclass does not report of a start is ignored.

    def loading(self, engines: Sequence[EngineStatus]) -> None:
        return

    def stopping(self) -> None:
        return

    def stop(self) -> None:
        return


class CannotStart(Exception):
    """The service cannot be started; the text is one sentence for a person."""


def take_address(
    listen: Listen, make: Callable[[Listen], socket.socket] = listening_socket
) -> socket.socket:
    """Return a bound socket; raise :class:`CannotStart` if the address cannot be used."""
    try:
        _ = listen.host.encode("idna")  # as a look-up does, which leaves a socket behind
        return make(listen)
    except UnicodeError as error:
        raise CannotStart(f"{listen.host!r} is no host name: {error}") from error
    except OSError as error:
        place = f"{listen.host}:{listen.port}"
        if error.errno == errno.EADDRINUSE:
            why = f"{place} is in use by another program; choose another port with `--port`"
        else:
            why = f"{place} cannot be listened on: {error.strerror or error}"
        raise CannotStart(why) from error


def bound_sockets(
    settings: Settings, stack: ExitStack, make: Callable[[Listen], socket.socket] = listening_socket
) -> Bound:
    server = settings.server
    service = stack.enter_context(take_address(Listen(server.host, server.port), make))
    scraped = settings.metrics.address
    metrics = stack.enter_context(take_address(Listen(*scraped), make)) if scraped else None
    return Bound(service, metrics)


async def run(
    edge: Edge,
    engines: Fleet,
    preload: Sequence[str],
    listen: Listen,
    watcher: StartAnnouncer,
    bound: Bound,
) -> None:
    """Serve until a signal at the sockets ``bound``, and load the models ``preload`` meanwhile.

    A failed one is logged and tried again by requests; if all fail, raises :class:`CannotStart`.
    """
    spare_the_collector()
    give_back_large_blocks()
    start = _Start(engines, preload, watcher)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(start.follow()), group.create_task(start.say_stop())]
        try:
            await serve(edge, listen, stop=start.stop, on_ready=start.accepts, bound=bound)
        finally:
            for task in tasks:
                task.cancel()
            watcher.stop()
    if start.failure is not None:
        raise start.failure


async def load_to_the_end(engines: Fleet, model: str) -> None:
    """Load a model, and wait for as long as that takes. Raises :class:`EngineFailed`."""
    while True:
        try:
            await engines.engine(model).load()
            break
        except EngineFailed as error:
            if not error.loading:
                raise
            await asyncio.sleep(error.retry_after)


def spare_the_collector() -> None:
    """Exempt objects of the start from garbage collection: saves a tenth of a request's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, 50, 50)


def give_back_large_blocks() -> None:
    """Have the memory of large bodies go back to the system as soon as they are freed.

    Left to itself, glibc's allocator raises the size from which on a block has a mapping of its
    own with each one that is freed: from then on blocks of 16 MiB stay in the heap for good.
    """
    try:
        glibc = os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, OSError, ValueError):  # another system, or another C library
        return
    if glibc:
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _OWN_MAPPING_BYTES)


@dataclass(eq=False)
class _Start:
    _engines: Fleet
    _preload: Sequence[str]
    _watcher: StartAnnouncer
    failure: CannotStart | None = None

    def __post_init__(self) -> None:
        self._address_future: asyncio.Future[tuple[str, int]] = (
            asyncio.get_running_loop().create_future()
        )
        self.stop = asyncio.Event()
        self._failure_list: list[CannotStart] = []

    def accepts(self, host: str, port: int) -> None:
        self._address_future.set_result((host, port))

    async def say_stop(self) -> None:
        await self.stop.wait()
        if self.failure is None:
            self._watcher.stopping()

    async def follow(self) -> None:
        """Load the models, then announce the address; stop the service if none loads."""
        address = await self._address_future
        async with owned(self._show_load_progress()):
            await asyncio.gather(*(self._preload_model(model) for model in self._preload))
        if self._failure_list and len(self._failure_list) == len(self._preload):
            self.failure = self._failure_list[-1]
            self.stop.set()
            return
        self._watcher.loading(self._engines.status())  # with what is known of the loaded ones
        self._watcher.ready(*address)

    async def _preload_model(self, model_id: str) -> None:
        with suppress(KeyError):  # a reload may take the model away meanwhile
            while True:
                engine = self._engines.engine(model_id)
                try:
                    await load_to_the_end(self._engines, model_id)
                    break
                except EngineFailed as error:
                    if engine == self._engines.engine(model_id):
                        self._failure_list.append(CannotStart(f"{model_id} did not load: {error}"))
                        if len(self._failure_list) < len(self._preload):
                            log.warning(NOT_LOADED, model=model_id, why=str(error))
                        break

    async def _show_load_progress(self) -> None:
        while True:
            self._watcher.loading(self._engines.status())
            await asyncio.sleep(_REFRESH_SECONDS)
