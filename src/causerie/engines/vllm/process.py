"""Starting vLLM, waiting until it serves, and what its log says when it fails."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

from causerie.engines.base import EngineFailed
from causerie.engines.process import EngineChild, EngineProcess
from causerie.engines.program import Program, free_port, run, served, start_supervisor
from causerie.engines.transport import near
from causerie.engines.vllm.client import VllmClient
from causerie.engines.vllm.options import VllmOptions, arguments
from causerie.engines.watchdog import Pulse
from causerie.runtime.child_environment import engine_environment

_FAREWELL_SECONDS = 5.0  # for shared memory and sockets of its workers
_QUESTIONS = (("/health", 10.0),)  # answered alongside what is computed, and not when that has died
# Weights lie here and tokens are nobody's business: it is to speak with no hub and to tell nobody
# how it is used. What is set in the environment stays.
_QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
_ERROR = re.compile(r"\b\w*(?:Error|Exception): .+")
_HARMLESS = re.compile(r"\b(?:DEBUG|INFO|WARNING) \d\d-\d\d ")  # an error there is only an example
# These say that something else has failed.
_PASSED_ON = ("See root cause above", "Engine core initialization failed", "RemoteError")

VllmChild = EngineChild[VllmClient]


async def spawn(model: Path, options: VllmOptions, load_seconds: float, pulse: Pulse) -> VllmChild:
    """Start vLLM and wait until it serves; raise :class:`EngineFailed` with the reason."""
    process = await start_supervisor({**_QUIET, **engine_environment(options.environment)})
    key = secrets.token_urlsafe(32)
    place = process.ipc_socket.path or free_port()
    client = VllmClient(*near(place), key)
    environment = {"VLLM_API_KEY": key}
    if options.devices is not None:
        environment["CUDA_VISIBLE_DEVICES"] = options.devices
    program = Program(arguments(model, options, place), environment, _FAREWELL_SECONDS)
    try:
        async with asyncio.timeout(load_seconds):
            await run(process, program)
            how = await served(process, client.healthy)
    except BaseException as failure:
        await _end(process, client)
        if isinstance(failure, TimeoutError):
            raise EngineFailed(f"the model was not loaded within {load_seconds:g} s") from None
        raise
    if how is not None:
        await _end(process, client)
        why = last_words(process.tail) or how
        raise EngineFailed(f"vLLM could not load {model}: {why}")
    return EngineChild(process, client, pulse, _QUESTIONS, last_words)


async def _end(process: EngineProcess, client: VllmClient) -> None:
    try:
        await client.close()
    finally:
        await process.end()


def last_words(tail: Iterable[str]) -> str:
    """Return the first error of the log that is no consequence of another; empty without one."""
    logged = [line for line in tail if not _HARMLESS.search(line)]
    said = [found.group() for line in logged if (found := _ERROR.search(line))]
    causes = [line for line in said if not any(word in line for word in _PASSED_ON)]
    return next(iter(causes or said), "").strip()[:300]
