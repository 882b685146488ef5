"""``causerie show``: facts of one model, and how it would run on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path

import msgspec

from causerie.chat.formats.format import ModelFormat
from causerie.chat.formats.registry import detect
from causerie.cli.cached import size_text
from causerie.cli.exits import CommandFailed, ExitCode
from causerie.cli.in_force import settings_in_force
from causerie.cli.names import library, ref_of
from causerie.cli.options import Config, Set
from causerie.composition.app import engine_of, fetch_weights, weights_here
from causerie.engines.base import RecommendedSampling
from causerie.engines.llamacpp.fit import free_now
from causerie.engines.llamacpp.options import LlamaCppOptions, available_memory, for_machine
from causerie.engines.recommended_sampling import of_folder, of_gguf
from causerie.engines.weights import CachedWeights, Silent
from causerie.engines.weights.folder import read_folder, read_openvino_folder
from causerie.engines.weights.gguf import Header, read_header
from causerie.engines.weights.quantization import of_file_name, of_file_type
from causerie.engines.weights.reference import Kind
from causerie.settings import ModelSettings

Facts = dict[str, object]


def model_facts(name: str, config: Config, pairs: Set) -> Facts:
    """Return what is known of a model. Raises :class:`CommandFailed`."""
    known = library()
    reference = known.reference(name)
    settings = settings_in_force(config, pairs).settings
    ref = ref_of(reference)
    model = ModelSettings(id="shown", ref=ref, engine=engine_of(settings, ref))
    looking: Coroutine[None, None, CachedWeights | None]
    if reference.kind is Kind.PATH:  # which says itself what is wrong with it
        looking = fetch_weights(settings, ref, Silent(), model.engine)
    else:
        looking = weights_here(settings, model)
    weights = asyncio.run(looking)
    named = known.of(reference)
    facts: Facts = {"name": named.name if named else name, "weights": ref}
    if named is not None:
        facts["license"] = named.license
    if weights is None:
        if named is None:
            advice = f"fetch it by `causerie pull {name}`"
            raise CommandFailed(f"{name} is not on this machine; {advice}", ExitCode.NETWORK)
        return facts | {"size": named.size, "trained_context": named.context, "file": "not fetched"}
    if weights.path.is_dir():
        return facts | {"folder": str(weights.path)} | _of_folder(weights.path, ref, model.engine)
    header = read_header(weights.path)
    runs = _runs(header)
    return facts | {"file": str(weights.path)} | _of_file(header, ref) | runs


def _of_file(header: Header, ref: str) -> Facts:
    sampling = of_gguf(header.sampling, (*header.names, ref, header.architecture))
    return {
        "architecture": header.architecture,
        "quantization": _quantization(header),
        "size": header.file_size,
        "trained_context": header.context_length,
    } | _of_template(header.chat_template, sampling)


def _of_folder(path: Path, ref: str, engine: str) -> Facts:
    """Return the facts of a model folder, and the engine that loads it."""
    folder = read_openvino_folder(path) if engine == "openvino" else read_folder(path)
    sampling = of_folder(folder.generation, (ref, path.name, folder.architecture))
    return {
        "engine": engine,
        "architecture": folder.architecture,
        "size": folder.file_size,
        "trained_context": folder.context_length,
    } | _of_template(folder.chat_template, sampling)


def _of_template(template: str, sampling: RecommendedSampling | None) -> Facts:
    form = detect(template)
    usual = msgspec.structs.asdict(sampling.usual) if sampling is not None else {}
    return {
        "template": "its own" if template else "none; ChatML is used",
        "format": form.name,
        "thinking": _thinking(form),
        "template_names_tools": "tools" in template,
        "sampling": {key: value for key, value in usual.items() if value is not None},
    }


def _runs(header: Header) -> Facts:
    """Return the options that the embedded engine would choose for it."""
    launch = for_machine(header.path, LlamaCppOptions(), header)
    total = available_memory()
    return {
        "context": launch.context,
        "requests_at_a_time": launch.parallel,
        "cache_tokens": launch.cache_tokens,
        "memory_needed": launch.memory,
        "memory_free": free_now(total),
        "fits": launch.memory <= total,
    }


def _quantization(header: Header) -> str | None:
    return of_file_type(header.file_type) or of_file_name(header.path.stem)


def _thinking(form: ModelFormat) -> str:
    if form.thinking is None:
        return "no"
    return "always" if form.thinking.mandatory else f"{form.thinking.default} by default"


def facts_text(key: str, value: object) -> str:
    """Return a value as people read it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return size_text(value) if key.startswith(("size", "memory")) else f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {one}" for name, one in value.items()) or "no recommendation"
    return "-" if value is None else str(value)
