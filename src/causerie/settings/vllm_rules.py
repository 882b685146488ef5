"""Rules for vLLM's options: for one that is started, and for one that others run."""

from __future__ import annotations

from collections.abc import Iterator

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
_ELSEWHERE = ("key", "served_name", "tls")
_EITHER = ("address", "context", "parallel")


def vllm_rules(at: KeyPath, vllm: Vllm) -> Iterator[Broken]:
    """Everything that is wrong with them."""
    for arg in vllm.args:
        if arg.partition("=")[0].replace("_", "-") in _OURS:
            yield Broken((*at, "args"), f'has "{arg}", which this service sets itself')
    without = Vllm()
    for name in Vllm.__struct_fields__:
        if name in _EITHER or getattr(vllm, name) == getattr(without, name):
            continue
        if vllm.address is None and name in _ELSEWHERE:
            yield Broken((*at, name), "is for a vLLM that others run; it needs `address`")
        if vllm.address is not None and name not in _ELSEWHERE:
            words = "means nothing alongside `address`: who runs that server sets it there"
            yield Broken((*at, name), words)
    if vllm.key is not None:
        yield from secret_rules((*at, "key"), vllm.key)
    if vllm.address is not None:
        yield from address_rules((*at, "address"), vllm.address, "name its key by `key`")
        yield from tls_rules((*at, "tls"), vllm.tls, vllm.address)
        if vllm.address.rstrip("/").endswith("/v1"):
            yield Broken((*at, "address"), "ends in /v1; it takes what stands before that")
