"""Certificates for the servers of vLLM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from causerie.composition.certificates import tls_context
from causerie.engines.base import EngineFailed
from causerie.settings import Vllm
from causerie.transport.client import Reach


def encryption(vllm: Vllm) -> Callable[[str, Reach], Reach]:
    """Return what adds certificates for a URL. Blocks; raises :class:`EngineFailed`."""
    try:
        tls = tls_context(vllm.tls) if vllm.encrypted else None
    except OSError as error:  # ssl.SSLError is one
        where = vllm.elsewhere[0]
        raise EngineFailed(f"certificates for {where} cannot be used: {error}") from error

    def encrypted(url: str, reach: Reach) -> Reach:
        if not url.startswith("https://"):
            return reach
        return replace(reach, tls=tls, server_name=vllm.tls.server_name)

    return encrypted
