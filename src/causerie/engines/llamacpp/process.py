"""Starting a child that runs llama.cpp, and what its log says when it fails."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import Collection, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog

from causerie.engines.base import EngineFailed
from causerie.engines.llamacpp.chunked_prefill import FULL_SPEED, ChunkedPrefill
from causerie.engines.llamacpp.client import LlamaCppClient
from causerie.engines.llamacpp.options import Launch
from causerie.engines.llamacpp.prompt_store import PromptStore
from causerie.engines.llamacpp.slots import Slots
from causerie.engines.process import EngineChild, EngineProcess
from causerie.engines.watchdog import Pulse
from causerie.runtime.child_environment import engine_environment

log = structlog.get_logger(__name__)

_GIVING_UP = ("GGML_ASSERT", "terminate called", "what():", "Fatal Python error")
# -P: nothing in the working directory is taken for a module.
_COMMAND = (sys.executable, "-P", "-m", "causerie.engines.llamacpp.child")
# By default threads spin for long while they wait for each other. Next to any other program that
# keeps a core busy generation then falls to a few tokens per second, and alone nothing is won.
_SHORT_SPIN = {"GOMP_SPINCOUNT": "1000"}
_VISIBLE_DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES")
_QUESTIONS = (
    ("/health", 10.0),  # its threads answer whatever is computed
    ("/slots", 200.0),  # its loop after every step; longer than one takes anywhere
)

LlamaCppChild = EngineChild[LlamaCppClient]


async def spawn(
    launch: Launch, load_seconds: float, pulse: Pulse, prompts: PromptStore
) -> LlamaCppChild:
    """Start a child and wait until it has loaded; raise :class:`EngineFailed` with the reason.

    ``pulse`` beats while it answers. ``prompts`` are those that left the slots of earlier children.
    """
    process = await EngineProcess.start(_COMMAND, environment(launch.devices, launch.environment))
    key = secrets.token_urlsafe(32)
    socket = process.ipc_socket.path
    task = {"launch": asdict(launch), "key": key, "socket": socket}
    try:
        ready = await _reply_with(process, launch, task, "ready", load_seconds)
    except BaseException:
        await process.end()
        raise
    place = socket or int(ready["address"].rpartition(":")[2])
    client = client_of(launch, place, key, (ready["batch"], ready["gpu_batch"]), prompts)
    return child_of(process, client, pulse)


async def converted_weights(launch: Launch, load_seconds: float) -> str:
    """Return the file to load by a program that does not convert it: a child does that before.

    Raises :class:`EngineFailed`.
    """
    process = await EngineProcess.start(_COMMAND, environment(launch.devices, launch.environment))
    task = {"launch": {**asdict(launch), "gpu_layers": 0}, "key": None, "socket": None}
    try:
        reply = await _reply_with(process, launch, task, "weights", load_seconds)
        return str(reply["weights"])
    finally:
        await process.end()


def client_of(
    launch: Launch,
    place: int | str,
    key: str,
    batches: tuple[int, int | None],
    prompts: PromptStore,
) -> LlamaCppClient:
    """Return a client of the engine at ``place``.

    ``batches``: the tokens of a step, and those of a computation on a GPU.
    """
    slots = Slots(launch.parallel, launch.cache_tokens, prompts)
    batch, gpu_batch = batches
    prefill = ChunkedPrefill(
        batch,
        launch.context,
        launch.token_seconds,
        gpu_batch or FULL_SPEED,
        enabled=launch.cuts_back,
    )
    return LlamaCppClient(place, key, slots, prefill)


def child_of(process: EngineProcess, client: LlamaCppClient, pulse: Pulse) -> LlamaCppChild:
    """Return the child that has loaded."""
    return EngineChild(process, client, pulse, _QUESTIONS, _dying_words)


def environment(devices: str | None = None, passed: Collection[str] = ()) -> dict[str, str]:
    """Return the environment of the child, in which a value that is set stays.

    With ``devices`` it sees no others, by whatever it reaches them. ``passed`` are the names of
    further variables of ours.
    """
    seen = {} if devices is None else dict.fromkeys(_VISIBLE_DEVICES, devices)
    return {**_SHORT_SPIN, **engine_environment(passed), **seen}


async def _reply_with(
    process: EngineProcess, launch: Launch, task: dict[str, Any], wanted: str, seconds: float
) -> dict[str, Any]:
    """Give a child its task, and return its first report that has ``wanted``.

    Raises :class:`EngineFailed` if it ends before, or sends no such report in time.
    """
    try:
        async with asyncio.timeout(seconds):
            await process.tell((json.dumps(task, default=os.fspath) + "\n").encode())
            async for line in process.stdout:
                fact = json.loads(line) if line.startswith(b"{") else {}
                if wanted in fact:
                    return fact
                _tell_conversion(Path(launch.weights).name, fact)
            await process.ended()  # for all that it has written
    except TimeoutError:
        raise EngineFailed(f"the model was not loaded within {seconds:g} s") from None
    reason = load_failure(process.tail)
    detail = f": {reason}" if reason else ""
    raise EngineFailed(f"the engine could not load {launch.files}{detail}")


def _tell_conversion(file: str, fact: dict[str, object]) -> None:
    match fact:
        case {"converted": float(fraction)}:
            log.info("weights are converted", file=file, to="Q8_0", percent=round(fraction * 100))
        case {"not_converted": reason}:
            log.warning("weights are not converted", file=file, reason=reason)
        case _:
            pass


def load_failure(tail: Iterable[str]) -> str:
    """Return the first error of the native log: the later ones only pass it on. Or nothing."""
    lines = list(tail)
    errors = [message for line in lines if (message := line.partition(" E ")[2].strip())]
    raised = [line for line in lines if "Error" in line]
    chosen = errors[:1] or _gave_up(lines)[:1] or raised[-1:]
    return chosen[0].strip()[:300] if chosen else ""


def _dying_words(tail: Iterable[str]) -> str:
    """Return the last message of native code before it aborted; empty if it was killed."""
    said = _gave_up(tail)
    return said[-1].strip()[:300] if said else ""


def _gave_up(tail: Iterable[str]) -> list[str]:
    return [line for line in tail if any(word in line for word in _GIVING_UP)]
