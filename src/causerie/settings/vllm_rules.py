"""Rules for vLLM's options: for one that is started, and for one that others run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from causerie.settings.engine import Vllm
from causerie.settings.lines import Path as KeyPath
from causerie.settings.problems import Broken
from causerie.settings.reach_rules import address_rules, secret_rules, tls_rules

# Options for its address, its callers, and others that this service relies on.
_OURS = frozenset(
    ("--host", "--port", "--uds", "--api-key", "--served-model-name", "--root-path", "--config",
     "--structured-outputs-config", "--generation-config", "--max-logprobs", "--tokenizer",
     "--ssl-keyfile", "--ssl-certfile", "--headless")
)  # fmt: skip
_ELSEWHERE = ("key", "kv_events", "served_name", "tls")
_EITHER = ("address", "addresses", "context", "parallel")


def vllm_rules(at: KeyPath, vllm: Vllm) -> Iterator[Broken]:
    yield from _option_rules(at, vllm)
    if vllm.key is not None:
        yield from secret_rules((*at, "key"), vllm.key)
    if vllm.address is not None:
        yield from _address_rules((*at, "address"), vllm.address)
        if _of_service(vllm.address):
            words = "names a service, which may have several servers; put it into `addresses`"
            yield Broken((*at, "address"), words)
        if vllm.kv_events is not None:
            yield Broken((*at, "kv_events"), "is for a pool; put the server into `addresses`")
    yield from _pool_rules((*at, "addresses"), vllm)
    if vllm.elsewhere:
        tls = [one for one in vllm.elsewhere if one.startswith("https://")] or vllm.elsewhere
        yield from tls_rules((*at, "tls"), vllm.tls, tls[0])


def device_rules(at: KeyPath, devices: Sequence[str], replicas: int) -> Iterator[Broken]:
    """Yield that not every replica has devices, if so."""
    if devices and len(devices) != replicas:
        words = f"has {len(devices)} entries; it takes one for each of {replicas} replicas"
        yield Broken((*at, "devices"), words)


def _option_rules(at: KeyPath, vllm: Vllm) -> Iterator[Broken]:
    for arg in vllm.args:
        if arg.partition("=")[0].replace("_", "-") in _OURS:
            yield Broken((*at, "args"), f'has "{arg}", which this service sets itself')
    yield from device_rules(at, vllm.devices, vllm.replicas)
    without = Vllm()
    for name in Vllm.__struct_fields__:
        if name in _EITHER or getattr(vllm, name) == getattr(without, name):
            continue
        if not vllm.elsewhere and name in _ELSEWHERE:
            yield Broken((*at, name), "is for a vLLM that others run; it needs `address`")
        if vllm.elsewhere and name not in _ELSEWHERE:
            words = "means nothing alongside `address`: who runs that server sets it there"
            yield Broken((*at, name), words)


def _address_rules(at: KeyPath, address: str) -> Iterator[Broken]:
    yield from address_rules(at, address, "name its key by `key`")
    if address.rstrip("/").endswith("/v1"):
        yield Broken(at, "ends in /v1; it takes what stands before that")


def _pool_rules(at: KeyPath, vllm: Vllm) -> Iterator[Broken]:
    if vllm.address is not None and vllm.addresses:
        yield Broken(at, "stands alongside `address`; name all servers here, or only one there")
    seen = [address.rstrip("/") for address in vllm.addresses]
    for index, address in enumerate(seen):
        yield from _address_rules((*at, index), vllm.addresses[index])
        if _of_service(address) and urlsplit(address).port:
            yield Broken((*at, index), "has a port, which its SRV records name; take it out")
        if address in seen[:index]:
            yield Broken((*at, index), "stands there twice; each server is named once")
        elif vllm.kv_events is not None and _host(address) in map(_host, seen[:index]):
            words = "is on the host of another one, and so are the ports of `kv_events`"
            yield Broken((*at, index), f"{words}; take them out, or start both by `replicas`")


def _of_service(address: str) -> bool:
    """Return whether the host is the name of a service, whose servers are in SRV records."""
    return _host(address).startswith("_")


def _host(address: str) -> str:
    return urlsplit(address).hostname or ""
