"""How long the event loop is held, in processor time of its own thread."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class LoopWatch:
    """The longest callback of the loop that runs in this thread, in seconds."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.what = ""

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Measure every callback within the block; the garbage collector is not of them."""
        here, run = threading.get_ident(), asyncio.Handle._run

        def measured(handle: asyncio.Handle) -> None:
            if threading.get_ident() != here:
                return run(handle)
            before = time.thread_time()
            try:
                return run(handle)
            finally:
                self._took(time.thread_time() - before, handle)

        gc.disable()
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(asyncio.Handle, "_run", measured)
                yield
        finally:
            gc.enable()

    def _took(self, seconds: float, handle: asyncio.Handle) -> None:
        if seconds > self.longest:
            self.longest, self.what = seconds, repr(handle)[:300]
