"""The inputs of a model's engine: with others it is another engine."""

from __future__ import annotations

import hashlib
from contextlib import suppress

from msgspec import structs

from causerie.composition.certificates import tls_digest
from causerie.settings import ModelSettings, Settings
from causerie.settings.credentials import Credentials


def engine_recipe(settings: Settings, credentials: Credentials, model: ModelSettings) -> object:
    """Return the inputs of the engine, to be compared."""
    engines, vllm = settings.engines, model.vllm
    if vllm.addresses:  # a pool stays the same whoever is in it
        vllm = structs.replace(vllm, addresses=(str(vllm.encrypted),))
    return (
        model.engine, model.ref, model.llamacpp, model.openvino, vllm, model.options,
        settings.weights, engines.load_seconds, _secrets(credentials, model),
    )  # fmt: skip


def _secrets(credentials: Credentials, model: ModelSettings) -> bytes:
    """Key and certificates of a server of others as a digest: no secret is kept to compare."""
    digest = hashlib.sha256(credentials.models.get(model.id, "").encode())
    with suppress(OSError):  # whoever makes the engine says what is wrong with a file
        digest.update(tls_digest(model.vllm.tls))
    return digest.digest()
