"""A service for as long as one command needs it: in a thread of that command's process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress

from causerie.composition.app import run_service
from causerie.composition.startup import StartAnnouncer
from causerie.settings import Loaded

Address = Future[tuple[str, int]]
_Ending = Future[tuple[asyncio.AbstractEventLoop, "asyncio.Task[None]"]]


@contextmanager
def serving_alongside(
    loaded: Loaded, watcher: StartAnnouncer, address: Address
) -> Iterator[tuple[str, int]]:
    """Serve while the block runs; yields host and port once the models are loaded.

    ``watcher`` gives ``address`` its result when it is told that all is ready. Raises what
    :func:`run_service` raises.
    """
    ending: _Ending = Future()

    async def serve() -> None:
        task = asyncio.current_task()
        assert task is not None
        ending.set_result((asyncio.get_running_loop(), task))
        await run_service(loaded, lambda *_: loaded, watcher)

    def run() -> None:
        try:
            with suppress(asyncio.CancelledError):
                asyncio.run(serve())
        except BaseException as failure:  # noqa: BLE001 - whoever waits for the address gets it
            if not address.done():
                address.set_exception(failure)

    thread = threading.Thread(target=run, name="service")
    thread.start()
    try:
        yield address.result()
    finally:
        loop, task = ending.result()
        with suppress(RuntimeError):  # it has ended by itself
            loop.call_soon_threadsafe(task.cancel)
        thread.join()
