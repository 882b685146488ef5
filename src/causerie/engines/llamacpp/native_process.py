"""Starting a native build of llama.cpp, and what its log says when it fails."""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
from pathlib import Path

from causerie.engines.base import EngineFailed
from causerie.engines.llamacpp.client import LlamaCppClient
from causerie.engines.llamacpp.native import (
    NativeBuild,
    any_error,
    arguments,
    check,
    unknown_argument,
)
from causerie.engines.llamacpp.options import Launch
from causerie.engines.llamacpp.process import (
    LlamaCppChild,
    child_of,
    client_of,
    converted_weights,
    environment,
    load_failure,
)
from causerie.engines.llamacpp.prompt_store import PromptStore, files_for, is_possible
from causerie.engines.llamacpp.withheld import PartialTokens
from causerie.engines.process import EngineProcess
from causerie.engines.program import Program, free_port, run, served, start_supervisor
from causerie.engines.watchdog import Pulse


async def spawn_native(
    build: NativeBuild,
    launch: Launch,
    partial: PartialTokens,
    load_seconds: float,
    pulse: Pulse,
    prompts: PromptStore,
) -> LlamaCppChild:
    """Start the program and wait until it has loaded and has generated a token.

    Otherwise as :func:`~causerie.engines.llamacpp.process.spawn`.
    """
    weights = launch.weights
    if launch.conversion is not None:
        weights = await converted_weights(launch, load_seconds)
    process = await start_supervisor(environment(launch.devices, launch.environment))
    key = secrets.token_urlsafe(32)
    place = process.ipc_socket.path or free_port()
    batch, physical = build.batches(launch)
    batches = (batch, physical if build.computes_on_gpu(launch) else None)
    client = client_of(launch, place, key, batches, prompts)
    command = arguments(build, launch, weights, place, _states(place))
    # By its environment: arguments can be read by every user of the machine.
    program = Program(command, {"LLAMA_API_KEY": key}, cpus=launch.cpus, folder=build.folder)
    try:
        async with asyncio.timeout(load_seconds):
            await run(process, program)
            how = await served(process, lambda: client.ask("GET", "/health"))
            if how is not None:
                raise EngineFailed(_failure(build, launch, process, how))
            await check(client, partial, build)
    except BaseException as failure:
        await _end(process, client)
        if isinstance(failure, TimeoutError):
            raise EngineFailed(f"the model was not loaded within {load_seconds:g} s") from None
        raise
    return child_of(process, client, pulse)


def _states(place: int | str) -> str:
    """Return the folder of states of prompts: where it is not used, one that is there."""
    if is_possible():
        return files_for(os.getpid())
    return str(Path(place).parent) if isinstance(place, str) else tempfile.gettempdir()


def _failure(build: NativeBuild, launch: Launch, process: EngineProcess, how: str) -> str:
    tail = list(process.tail)
    reason = unknown_argument(tail) or load_failure(tail) or any_error(tail) or how
    return f"{build.program} ({build.version}) could not load {launch.files}: {reason}"


async def _end(process: EngineProcess, client: LlamaCppClient) -> None:
    try:
        await client.close()
    finally:
        await process.end()
