"""Starting a child that runs OpenVINO GenAI, and what its log says when it fails."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict

from causerie.engines.base import EngineFailed, LoadFailed
from causerie.engines.openvino.client import OpenVinoClient
from causerie.engines.openvino.options import OpenVinoLaunch
from causerie.engines.process import EngineChild, EngineProcess
from causerie.engines.watchdog import Pulse
from causerie.runtime.child_environment import engine_environment

# -P: nothing in the working directory is taken for a module.
_COMMAND = (sys.executable, "-P", "-m", "causerie.engines.openvino.child")
_QUESTIONS = (("/ping", 60.0),)  # between two steps, so longer than one takes anywhere
_MISSING = "No module named 'openvino"

OpenVinoChild = EngineChild[OpenVinoClient]


async def spawn(
    launch: OpenVinoLaunch, end: tuple[int, ...], load_seconds: float, pulse: Pulse
) -> OpenVinoChild:
    """Start a child and wait until it has loaded; raise :class:`EngineFailed` with the reason.

    ``end`` are the tokens that end a text; ``pulse`` beats while the child answers.
    """
    process = await EngineProcess.start(_COMMAND, engine_environment(launch.environment))
    client = OpenVinoClient(process, pulse)
    try:
        async with asyncio.timeout(load_seconds):
            told = json.dumps({**asdict(launch), "end": end}) + "\n"
            await process.tell(told.encode())
            loaded = await client.loaded()
        if not loaded:
            how = await process.ended()
            raise _failure(launch.weights, list(process.tail), how)
    except BaseException as failure:
        await client.close()
        await process.end()
        if isinstance(failure, TimeoutError):
            raise EngineFailed(f"the model was not loaded within {load_seconds:g} s") from None
        raise
    return EngineChild(process, client, pulse, _QUESTIONS, last_words)


def _failure(weights: str, tail: list[str], how: str) -> EngineFailed:
    if any(_MISSING in line for line in tail):
        return LoadFailed(
            "OpenVINO GenAI is not installed; in a clone of Causerie: pip install '.[openvino]'"
        )
    return EngineFailed(f"the engine could not load {weights}: {last_words(tail) or how}")


def last_words(tail: Iterable[str]) -> str:
    """Return the first error of the log with what follows it; empty without one."""
    lines = [line.strip() for line in tail]
    for index, line in enumerate(lines):
        if "Error" in line or "what():" in line:
            return " ".join(part for part in lines[index:] if part)[:300]
    return ""
