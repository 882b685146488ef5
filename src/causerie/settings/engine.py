"""Options of vLLM, and the rules for the options of vLLM and llama.cpp."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from causerie.engines.options import LlamaCpp, VllmOptions
from causerie.settings import values
from causerie.settings.problems import Broken
from causerie.settings.provider import TlsSettings, address_rules, tls_rules
from causerie.settings.toml import KeyPath

Port = Annotated[int, Meta(ge=1, le=65_535)]


class KvEvents(Struct, frozen=True, kw_only=True):
    """Ports at which servers of a pool publish what their caches hold (`--kv-events-config`)."""

    port: Port = 5557
    """Port of the endpoint, on the host of each server."""
    replay_port: Port | None = None
    """Port of the replay endpoint. Unset: what was missed is not asked for."""
    ranks: values.Count = 1
    """Data-parallel ranks of each server: so many ports, from these on."""


class Vllm(VllmOptions, frozen=True, kw_only=True):
    """Options of vLLM, which is installed apart, or which others run.

    Unset values are vLLM's own choice.
    """

    address: values.WebAddress | None = None
    """Base URL, without `/v1`, of a vLLM that others run: then none is started, and options of
    starting one mean nothing."""
    addresses: tuple[values.WebAddress, ...] = ()
    """Several such base URLs in place of `address`: servers of the same model, which are used as
    one. A reload may add and remove some while others answer. A host name stands for as many
    servers as it has IP addresses, one like `_http._tcp.name` for those of its SRV records; both
    are looked up every five seconds."""
    key: values.KeyPlace | None = None
    """Where the key is found that is sent to `address`. Unset: none is sent."""
    kv_events: KvEvents | None = None
    """Where the servers of `addresses` publish what their caches hold. Unset: only what was sent to
    them is known."""
    served_name: values.Text | None = None
    """Name of the model at `address`. Unset: the only one that is there."""
    tls: TlsSettings = TlsSettings()

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """Return the base URLs of vLLM servers that others run; empty if one is started here."""
        return self.addresses if self.address is None else (self.address,)

    @property
    def encrypted(self) -> bool:
        return any(url.startswith("https://") for url in self.elsewhere)


# Rules for vLLM's options: for one that is started, and for one that others run.

_OURS: Mapping[str, Sequence[str]] = tomllib.loads(
    Path(__file__).with_name("own_arguments.toml").read_text("utf-8")
)
_ELSEWHERE = ("key", "kv_events", "served_name", "tls")
_EITHER = ("address", "addresses", "context", "parallel")


def vllm_rules(at: KeyPath, vllm: Vllm) -> Iterator[Broken]:
    yield from _find_vllm_option_problems(at, vllm)
    if vllm.address is not None:
        yield from _find_address_problems((*at, "address"), vllm.address)
        if _is_srv_name(vllm.address):
            words = "names a service, which may have several servers; put it into `addresses`"
            yield Broken((*at, "address"), words)
        if vllm.kv_events is not None:
            yield Broken((*at, "kv_events"), "is for a pool; put the server into `addresses`")
    yield from _find_vllm_pool_problems((*at, "addresses"), vllm)
    if vllm.elsewhere:
        tls = [one for one in vllm.elsewhere if one.startswith("https://")] or vllm.elsewhere
        yield from tls_rules((*at, "tls"), vllm.tls, tls[0])


def device_rules(at: KeyPath, devices: Sequence[str], replicas: int) -> Iterator[Broken]:
    if devices and len(devices) != replicas:
        words = f"has {len(devices)} entries; it takes one for each of {replicas} replicas"
        yield Broken((*at, "devices"), words)


def _find_vllm_option_problems(at: KeyPath, vllm: Vllm) -> Iterator[Broken]:
    for arg in vllm.args:
        if arg.partition("=")[0].replace("_", "-") in _OURS["vllm"]:
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


def _find_address_problems(at: KeyPath, address: str) -> Iterator[Broken]:
    yield from address_rules(at, address, "name its key by `key`")
    if address.rstrip("/").endswith("/v1"):
        yield Broken(at, "ends in /v1; it takes what stands before that")


def _find_vllm_pool_problems(at: KeyPath, vllm: Vllm) -> Iterator[Broken]:
    if vllm.address is not None and vllm.addresses:
        yield Broken(at, "stands alongside `address`; name all servers here, or only one there")
    seen = [address.rstrip("/") for address in vllm.addresses]
    for index, address in enumerate(seen):
        yield from _find_address_problems((*at, index), vllm.addresses[index])
        if _is_srv_name(address) and urlsplit(address).port:
            yield Broken((*at, index), "has a port, which its SRV records name; take it out")
        if address in seen[:index]:
            yield Broken((*at, index), "stands there twice; each server is named once")
        elif vllm.kv_events is not None and _hostname_or_empty(address) in map(
            _hostname_or_empty, seen[:index]
        ):
            words = "is on the host of another one, and so are the ports of `kv_events`"
            yield Broken((*at, index), f"{words}; take them out, or start both by `replicas`")


def _is_srv_name(address: str) -> bool:
    return _hostname_or_empty(address).startswith("_")


def _hostname_or_empty(address: str) -> str:
    return urlsplit(address).hostname or ""


# Rules for llama.cpp's options, and for the arguments of a native build.


def llamacpp_rules(at: KeyPath, llamacpp: LlamaCpp) -> Iterator[Broken]:
    context, cache_tokens = llamacpp.context, llamacpp.cache_tokens
    if llamacpp.draft and llamacpp.speculation != "off":
        yield Broken((*at, "speculation"), "excludes `draft`; set one of them")
    if isinstance(context, int) and cache_tokens is not None and cache_tokens < context:
        yield Broken((*at, "cache_tokens"), f"must be at least `context`, which is {context}")
    if cache_tokens is not None and llamacpp.replicas > 1:
        words = "is for one process, whose tokens are counted; with `replicas` set `parallel`"
        yield Broken((*at, "cache_tokens"), words)
    yield from device_rules(at, llamacpp.devices, llamacpp.replicas)
    at = (*at, "args")
    if llamacpp.args and llamacpp.command is None:
        yield Broken(at, "is for a native build of llama.cpp; name its program by `command`")
    for arg in llamacpp.args:
        name = arg.replace("_", "-") if arg.startswith("--") else arg
        if name in _OURS["llamacpp"]:
            yield Broken(at, f'has "{arg}", which this service sets itself')
