"""``causerie models`` and ``causerie show``: what is configured, and the facts of one model."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from causerie.cli.exits import CommandFailed, ExitCode, reporting
from causerie.cli.options import Config, Database, Set, library, ref_of, settings_in_force

if TYPE_CHECKING:
    from causerie.chat.formats.format import ModelFormat
    from causerie.engines.base import RecommendedSampling
    from causerie.engines.weights.cache import CachedWeights
    from causerie.engines.weights.gguf import Header
    from causerie.settings import Settings


def models(
    config: Config = None,
    pairs: Set = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
    database: Database = False,
) -> None:
    """List the configured models, and the weights in the cache.

    **Examples**

    `causerie models`

    `causerie models --json`
    """
    import asyncio

    import msgspec

    from causerie.cli.entries import with_database

    with reporting():
        found = with_database(config, pairs)[0] if database else settings_in_force(config, pairs)
        rows = asyncio.run(list_models(found.settings))
        if as_json:
            typer.echo(msgspec.json.encode(rows))
        else:
            show_models(rows)


@dataclass(frozen=True, slots=True)
class ModelLine:
    """One row of the list. ``bytes`` is ``None`` where the weights are not fetched."""

    id: str | None
    ref: str | None
    engine: str | None
    bytes: int | None
    path: str | None


async def list_models(settings: Settings) -> list[ModelLine]:
    """Return the configured models, then the other weights in the cache."""
    import asyncio

    from causerie.composition.engine_makers import cached_weights, weights_here

    rows = []
    for model in settings.models:
        here = await weights_here(settings, model) if model.ref else None
        size, path = (here.size, str(here.path)) if here else (None, None)
        rows.append(ModelLine(model.id, model.ref, model.engine, size, path))
    known = {row.path for row in rows}
    for weights in await asyncio.to_thread(cached_weights, settings):
        if str(weights.path) not in known:
            rows.append(ModelLine(None, weights.ref, None, weights.size, str(weights.path)))
    return rows


def show_models(rows: Sequence[ModelLine]) -> None:
    """Print models as a table."""
    from causerie.cli.terminal import print_table

    cells = [(row.id or "-", row.ref or "-", row.engine or "-", _size(row)) for row in rows]
    print_table(("MODEL", "WEIGHTS", "ENGINE", "SIZE"), cells, right={"SIZE"})


def _size(row: ModelLine) -> str:
    from causerie.cli.terminal import size_text

    if row.bytes is None:
        return "not fetched" if row.ref else "-"
    return size_text(row.bytes)


def show(
    name: Annotated[str, typer.Argument(help="A short name, a reference, or a path.")],
    config: Config = None,
    pairs: Set = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show facts of a model, and how it would run on this machine.

    Most facts are read from the file, so they need a model that is fetched.

    **Examples**

    `causerie show smollm2`

    `causerie show ./model.gguf --json`
    """
    import msgspec

    from causerie.cli.terminal import print_facts

    with reporting():
        facts = model_facts(name, config, pairs)
        if as_json:
            typer.echo(msgspec.json.encode(facts))
            return
        print_facts([(key.replace("_", " "), facts_text(key, facts[key])) for key in facts])


Facts = dict[str, object]


def model_facts(name: str, config: Config, pairs: Set) -> Facts:
    """Return the facts of a model. Raises :class:`CommandFailed`."""
    import asyncio

    from causerie.composition.engine_makers import engine_of, fetch_weights, weights_here
    from causerie.engines.weights.gguf import read_header
    from causerie.engines.weights.progress import Silent
    from causerie.engines.weights.reference import Kind
    from causerie.settings import ModelSettings

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
        return (
            facts | {"folder": str(weights.path)} | _folder_facts(weights.path, ref, model.engine)
        )
    header = read_header(weights.path)
    runs = _launch_facts(header)
    return facts | {"file": str(weights.path)} | _file_facts(header, ref) | runs


def _file_facts(header: Header, ref: str) -> Facts:
    from causerie.engines.recommended_sampling import of_gguf

    sampling = of_gguf(header.sampling, (*header.names, ref, header.architecture))
    return {
        "architecture": header.architecture,
        "quantization": _quantization(header),
        "size": header.file_size,
        "trained_context": header.context_length,
    } | _template_facts(header.chat_template, sampling)


def _folder_facts(path: Path, ref: str, engine: str) -> Facts:
    from causerie.engines.recommended_sampling import of_folder
    from causerie.engines.weights.folder import read_folder, read_openvino_folder

    folder = read_openvino_folder(path) if engine == "openvino" else read_folder(path)
    sampling = of_folder(folder.generation, (ref, path.name, folder.architecture))
    return {
        "engine": engine,
        "architecture": folder.architecture,
        "size": folder.file_size,
        "trained_context": folder.context_length,
    } | _template_facts(folder.chat_template, sampling)


def _template_facts(template: str, sampling: RecommendedSampling | None) -> Facts:
    import msgspec

    from causerie.chat.formats.registry import detect

    form = detect(template)
    usual = msgspec.structs.asdict(sampling.usual) if sampling is not None else {}
    return {
        "template": "its own" if template else "none; ChatML is used",
        "format": form.name,
        "thinking": _thinking(form),
        "template_names_tools": "tools" in template,
        "sampling": {key: value for key, value in usual.items() if value is not None},
    }


def _launch_facts(header: Header) -> Facts:
    from causerie.engines.llamacpp.fit import free_now
    from causerie.engines.llamacpp.options import LlamaCppOptions, available_memory, for_machine

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
    from causerie.engines.weights.quantization import of_file_name, of_file_type

    return of_file_type(header.file_type) or of_file_name(header.path.stem)


def _thinking(form: ModelFormat) -> str:
    if form.thinking is None:
        return "no"
    return "always" if form.thinking.mandatory else f"{form.thinking.default} by default"


def facts_text(key: str, value: object) -> str:
    """Return a fact as text for people."""
    from causerie.cli.terminal import size_text

    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return size_text(value) if key.startswith(("size", "memory")) else f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {one}" for name, one in value.items()) or "no recommendation"
    return "-" if value is None else str(value)
