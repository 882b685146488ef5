"""The event loop that the service runs on: uvloop where the system has it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine

if sys.platform == "win32":
    _factory = None
else:
    import uvloop

    _factory = uvloop.new_event_loop


def run(main: Coroutine[object, object, None]) -> None:
    """Run to the end, on a loop of its own."""
    with asyncio.Runner(loop_factory=_factory) as runner:
        runner.run(main)
