"""Engines of vLLM from the settings: started here or run by others, one or a pool of them.

Imported where a model has one: the tokenizer's library takes memory that others do not need.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import structs

from causerie.composition.providers import tls_context
from causerie.engines.base import EngineFailed
from causerie.engines.fleet import ManagedEngine
from causerie.engines.options import VllmOptions
from causerie.engines.pool.kv_events import KvEndpoint
from causerie.engines.pool.pool import EnginePool, MemberAddress
from causerie.engines.vllm.client import Elsewhere
from causerie.engines.vllm.engine import (
    EVENTS_OPTION,
    KvSockets,
    ServedFolder,
    VllmEngine,
    events_arguments,
)
from causerie.http.client import Reach
from causerie.settings.engine import KvEvents, Vllm
from causerie.settings.tree import ModelSettings


async def vllm_engine(
    model: ModelSettings, folder: Path, key: str | None, load_seconds: float
) -> ManagedEngine:
    read = partial(ServedFolder, folder, weights=not model.vllm.elsewhere)
    served = await asyncio.to_thread(read)
    engine = partial(VllmEngine, model.id, served, ref=model.ref or "", load_seconds=load_seconds)
    if not model.vllm.elsewhere:
        replicas = _build_options_by_replica(model.vllm)
        if len(replicas) == 1:
            return engine(*replicas.values())
        return _build_replica_pool(model, replicas, engine)
    at = await asyncio.to_thread(_remote_server_factory, model.vllm, key)
    if model.vllm.address is not None:
        return engine(at(MemberAddress(model.vllm.address)))
    return EnginePool(
        model.id,
        model.vllm.addresses,
        lambda address: engine(at(address)),
        events=partial(_list_kv_endpoints, model.vllm.kv_events),
    )


def _build_replica_pool(
    model: ModelSettings,
    replicas: Mapping[str, VllmOptions],
    make_engine: Callable[[VllmOptions], VllmEngine],
) -> EnginePool:
    sockets = {name: KvSockets() for name in replicas} if _can_publish_kv_events(model.vllm) else {}
    endpoints = {name: at.endpoint for name, at in sockets.items() if at.endpoint is not None}

    def make(address: MemberAddress) -> VllmEngine:
        options = replicas[address.url]
        if endpoint := endpoints.get(address.url):
            options = structs.replace(options, args=(*options.args, *events_arguments(endpoint)))
        return make_engine(options)

    def close() -> None:
        for each in sockets.values():
            each.close()

    return EnginePool(
        model.id,
        list(replicas),
        make,
        events=lambda one: [endpoints[one.url]] if one.url in endpoints else [],
        close=close,
    )


def _can_publish_kv_events(vllm: Vllm) -> bool:
    # Ranks have ports of their own; whoever configures the events reads them elsewhere.
    configured = any(one.partition("=")[0].replace("_", "-") == EVENTS_OPTION for one in vllm.args)
    return find_spec("zmq") is not None and (vllm.data_parallel or 1) == 1 and not configured


def _list_kv_endpoints(events: KvEvents | None, address: MemberAddress) -> Sequence[KvEndpoint]:
    if events is None:
        return ()
    host = address.host or urlsplit(address.url).hostname or ""
    at = f"tcp://[{host}]" if ":" in host else f"tcp://{host}"
    replay = events.replay_port
    return [
        KvEndpoint(
            f"{at}:{events.port + rank}", f"{at}:{replay + rank}" if replay is not None else None
        )
        for rank in range(events.ranks)
    ]


def _build_options_by_replica(vllm: Vllm) -> Mapping[str, VllmOptions]:
    return {
        f"replica-{number}": structs.replace(vllm, devices=(devices,) if devices else ())
        for number, devices in enumerate(vllm.devices_of_replicas, 1)
    }


def _remote_server_factory(vllm: Vllm, key: str | None) -> Callable[[MemberAddress], Elsewhere]:
    try:
        tls = tls_context(vllm.tls) if vllm.encrypted else None
    except OSError as error:  # ssl.SSLError is one
        where = vllm.elsewhere[0]
        raise EngineFailed(f"certificates for {where} cannot be used: {error}") from error

    def elsewhere(address: MemberAddress) -> Elsewhere:
        reach = Reach(host=address.host)
        if address.url.startswith("https://"):
            reach = replace(reach, tls=tls, server_name=vllm.tls.server_name)
        return Elsewhere(address.url, key, vllm.served_name, vllm.context, vllm.parallel, reach)

    return elsewhere
