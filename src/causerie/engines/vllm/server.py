"""A vLLM started here, or one that others run: until it serves, and until it does no more.

Of one that others run nothing is started or ended here. One that is started here publishes its
KV events at sockets of this user's own.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from time import monotonic

import structlog

from causerie.engines.base import EngineFailed
from causerie.engines.child_environment import engine_environment
from causerie.engines.pool.kv_events import KvEndpoint
from causerie.engines.process import (
    EngineChild,
    IpcSocket,
    Program,
    Pulse,
    child_address,
    free_port,
    serve_program,
    start_program_child,
    starting,
)
from causerie.engines.vllm.client import (
    HEALTH,
    Elsewhere,
    VllmClient,
    VllmOptions,
    VllmRefused,
    vllm_arguments,
)
from causerie.http.client_connection import TransportFailed

EVENTS_OPTION = "--kv-events-config"


class KvSockets:
    """The sockets at which one replica publishes its KV events, through all of its restarts.

    They are Unix sockets because events contain the tokens of prompts, and a port is open to every
    user of the machine.
    """

    def __init__(self) -> None:
        self._events, self._replay = IpcSocket(), IpcSocket()
        events, replay = self._events.path, self._replay.path
        self.endpoint: KvEndpoint | None = None
        """``None`` where there are no such sockets."""
        if events is not None and replay is not None:
            self.endpoint = KvEndpoint(f"ipc://{events}", f"ipc://{replay}")

    def close(self) -> None:
        """Remove them. May be called again."""
        self._events.close()
        self._replay.close()


def events_arguments(endpoint: KvEndpoint) -> tuple[str, str]:
    config = {"endpoint": endpoint.events, "replay_endpoint": endpoint.replay}
    return EVENTS_OPTION, json.dumps(config | {"enable_kv_cache_events": True, "publisher": "zmq"})


_FAREWELL_SECONDS = 5.0  # for shared memory and sockets of its workers
# Answered alongside what is computed, and not when that has died.
_CHILD_QUESTIONS = ((HEALTH, 10.0),)
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
    process = await start_program_child({**_QUIET, **engine_environment(options.environment)})
    key = secrets.token_urlsafe(32)
    place = process.ipc_socket.path or free_port()
    client = VllmClient(*child_address(place), key)
    environment = {"VLLM_API_KEY": key}
    if options.devices is not None:
        environment["CUDA_VISIBLE_DEVICES"] = options.devices
    program = Program(vllm_arguments(model, options, place), environment, _FAREWELL_SECONDS)
    async with starting(process, client, load_seconds):
        how = await serve_program(process, program, lambda: client.ask("GET", HEALTH))
        if how is not None:
            why = last_words(process.tail) or how
            raise EngineFailed(f"vLLM could not load {model}: {why}")
    return EngineChild(process, client, pulse, _CHILD_QUESTIONS, last_words)


def last_words(tail: Iterable[str]) -> str:
    """Return the first error of the log that is no consequence of another; empty without one."""
    logged = [line for line in tail if not _HARMLESS.search(line)]
    said = [found.group() for line in logged if (found := _ERROR.search(line))]
    causes = [line for line in said if not any(word in line for word in _PASSED_ON)]
    return next(iter(causes or said), "").strip()[:300]


log = structlog.get_logger(__name__)

_FIRST_DELAY = 0.25
_LAST_DELAY = 5.0  # whoever waits for it wants to know soon, and the question costs nothing
_ANSWER_SECONDS = 10.0
_SERVER_QUESTIONS = ((HEALTH, 5.0),)


async def reached(where: Elsewhere, seconds: float, pulse: Pulse) -> VllmChild:
    """Return the server, for which is waited so long; raise :class:`EngineFailed` with the reason.

    ``pulse`` beats while it answers.
    """
    client = VllmClient(where.address, where.reach, where.key)
    try:
        await _answers(client, monotonic() + seconds)
    except BaseException:
        await client.close()
        raise
    return EngineChild(None, client, pulse, _SERVER_QUESTIONS, last_words)


async def _answers(client: VllmClient, until: float) -> None:
    delay = _FIRST_DELAY
    while True:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await client.ask("GET", HEALTH)
                return
        except TimeoutError:
            failure = EngineFailed(f"the server did not answer within {_ANSWER_SECONDS:g} s")
        except EngineFailed as error:
            failure = error
        why = failure.__cause__ or failure
        if not _may_pass(failure) or monotonic() + delay > until:
            # Not as one that is loading: who has waited so long is to hear why it was for nothing.
            raise EngineFailed(f"there is no vLLM at the address: {why}") from failure
        if delay == _FIRST_DELAY:
            log.warning("server is waited for", why=str(why))
        await asyncio.sleep(delay * random.uniform(0.8, 1.2))
        delay = min(delay * 2, _LAST_DELAY)


def _may_pass(failure: EngineFailed) -> bool:
    # Waiting does not help against a wrong certificate, or if another service answers at the
    # address.
    if isinstance(failure, VllmRefused):
        return failure.status >= 500
    cause = failure.__cause__
    return not (isinstance(cause, TransportFailed) and cause.kind == "tls")
