"""Starting a child that runs llama.cpp, and what its log says when it fails."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import Iterable
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
    process = await EngineProcess.start(_COMMAND, environment(launch.devices))
    key = secrets.token_urlsafe(32)
    try:
        async with asyncio.timeout(load_seconds):
            place, ready = await _loaded(process, launch, key)
    except BaseException as failure:
        await process.end()
        if isinstance(failure, TimeoutError):
            raise EngineFailed(f"the model was not loaded within {load_seconds:g} s") from None
        if isinstance(failure, _Ended):
            raise EngineFailed(
                f"the engine could not load {launch.files}{_load_failure(process.tail)}"
            ) from None
        raise
    slots = Slots(launch.parallel, launch.cache_tokens, prompts)
    prefill = ChunkedPrefill(
        ready["batch"],
        launch.context,
        launch.token_seconds,
        ready["gpu_batch"] or FULL_SPEED,
        enabled=launch.cuts_back,
    )
    client = LlamaCppClient(place, key, slots, prefill)
    return EngineChild(process, client, pulse, _QUESTIONS, _dying_words)


def environment(devices: str | None = None) -> dict[str, str]:
    """Return the environment of the child: ours, in which a value that is set stays.

    With ``devices`` it sees no others, by whatever it reaches them.
    """
    ours = dict(os.environ)  # noqa: TID251 - handed on, not read
    seen = {} if devices is None else dict.fromkeys(_VISIBLE_DEVICES, devices)
    return {**_SHORT_SPIN, **ours, **seen}


class _Ended(Exception):
    """The child ended while it was starting."""


async def _loaded(
    process: EngineProcess, launch: Launch, key: str
) -> tuple[int | str, dict[str, Any]]:
    """Return the address of the loaded child, and what it says of itself.

    The address is its socket, or a port if it has no socket.
    """
    socket = process.ipc_socket.path
    task = {"launch": asdict(launch), "key": key, "socket": socket}
    told = json.dumps(task, default=os.fspath) + "\n"
    await process.tell(told.encode())
    async for line in process.stdout:
        if not line.startswith(b"{"):
            continue
        fact = json.loads(line)
        if fact.get("ready"):
            return socket or int(fact["address"].rpartition(":")[2]), fact
        _tell_conversion(Path(launch.weights).name, fact)
    raise _Ended


def _tell_conversion(file: str, fact: dict[str, object]) -> None:
    match fact:
        case {"converted": float(fraction)}:
            log.info("weights are converted", file=file, to="Q8_0", percent=round(fraction * 100))
        case {"not_converted": reason}:
            log.warning("weights are not converted", file=file, reason=reason)
        case _:
            pass


def _load_failure(tail: Iterable[str]) -> str:
    """Return the first error of the native log: the later ones only pass it on."""
    lines = list(tail)
    errors = [message for line in lines if (message := line.partition(" E ")[2].strip())]
    raised = [line for line in lines if "Error" in line]
    chosen = errors[:1] or _gave_up(lines)[:1] or raised[-1:]
    return f": {chosen[0].strip()[:300]}" if chosen else ""


def _dying_words(tail: Iterable[str]) -> str:
    """Return the last message of native code before it aborted; empty if it was killed."""
    said = _gave_up(tail)
    return said[-1].strip()[:300] if said else ""


def _gave_up(tail: Iterable[str]) -> list[str]:
    return [line for line in tail if any(word in line for word in _GIVING_UP)]
