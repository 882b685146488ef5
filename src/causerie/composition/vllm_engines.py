"""Engines of vLLM from the settings: started here or run by others, one or a pool of them.

Imported where a model has one: the tokenizer's library takes memory that others do not need.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from causerie.composition.certificates import tls_context
from causerie.engines.base import EngineFailed
from causerie.engines.fleet import ManagedEngine
from causerie.engines.vllm.discovery import MemberAddress
from causerie.engines.vllm.engine import VllmEngine
from causerie.engines.vllm.folder import ServedFolder
from causerie.engines.vllm.kv_subscriber import KvEndpoint
from causerie.engines.vllm.options import Elsewhere, VllmOptions
from causerie.engines.vllm.pool import VllmPool
from causerie.settings import ModelSettings, Vllm
from causerie.settings.engine import KvEvents
from causerie.transport.client import Reach


async def vllm_engine(
    model: ModelSettings, folder: Path, key: str | None, load_seconds: float
) -> ManagedEngine:
    """Return the engine of a model, not started; raise :class:`EngineFailed`."""
    read = partial(ServedFolder, folder, weights=not model.vllm.elsewhere)
    served = await asyncio.to_thread(read)
    engine = partial(VllmEngine, model.id, served, ref=model.ref or "", load_seconds=load_seconds)
    if not model.vllm.elsewhere:
        replicas = _replicas(model.vllm)
        if len(replicas) == 1:
            return engine(*replicas.values())
        return VllmPool(model.id, list(replicas), lambda one: engine(replicas[one.url]))
    at = await asyncio.to_thread(_elsewhere, model.vllm, key)
    if model.vllm.address is not None:
        return engine(at(MemberAddress(model.vllm.address)))
    return VllmPool(
        model.id,
        model.vllm.addresses,
        lambda address: engine(at(address)),
        events=partial(_endpoints, model.vllm.kv_events),
    )


def renew_members(engine: ManagedEngine, vllm: Vllm) -> None:
    """Give a pool the members of other settings."""
    if isinstance(engine, VllmPool):
        engine.renew(vllm.addresses)


def _endpoints(events: KvEvents | None, address: MemberAddress) -> Sequence[KvEndpoint]:
    """Return where a server publishes, for each of its data-parallel ranks."""
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


def _replicas(vllm: Vllm) -> Mapping[str, VllmOptions]:
    """Return the options of each vLLM that is started, by its name."""
    shared = {one.name: getattr(vllm, one.name) for one in fields(VllmOptions)}
    return {
        f"replica-{number}": VllmOptions(**(shared | {"devices": devices}))
        for number, devices in enumerate(vllm.devices_of_replicas, 1)
    }


def _elsewhere(vllm: Vllm, key: str | None) -> Callable[[MemberAddress], Elsewhere]:
    """Return what makes a server of an address. Blocks; raises :class:`EngineFailed`."""
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
