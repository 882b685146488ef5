"""``causerie serve``: fetch a model if needed, load it, serve it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
from rich.console import Console

from causerie.cli import loop
from causerie.cli.announcement import ConsoleAnnouncer
from causerie.cli.exits import CommandFailed, ExitCode
from causerie.cli.in_force import settings_in_force
from causerie.cli.names import library, ref_of
from causerie.cli.options import Engine
from causerie.composition.app import engine_of, run_service, run_worker
from causerie.composition.supervisor import supervise
from causerie.composition.validated import checked
from causerie.composition.worker_place import own_place
from causerie.engines.weights.reference import Kind, Reference
from causerie.logging.setup import configure
from causerie.logging.stderr import heedless
from causerie.settings import Loaded, ModelSettings, Problem, Settings, SettingsError
from causerie.settings.addresses import has_accounts
from causerie.settings.entries import Entry, ReadWith
from causerie.settings.load import Override
from causerie.settings.workers import worker_count


def serve_until_stopped(read: ReadWith) -> None:
    """Serve by the settings that ``read`` gives, and tell on the terminal how it goes."""
    loaded, _ = checked(lambda: read((), None), commands=False)
    with heedless():
        configure(loaded.settings.logging.level, loaded.settings.logging.format)
        place = own_place()
        announcer = ConsoleAnnouncer(loaded.settings, Console(stderr=True))
        if place is not None:
            loop.run(run_worker(loaded, _again(read), place))
        elif worker_count(loaded.settings.server) > 1:
            arguments = sys.argv[1:]
            loop.run(supervise(loaded, arguments, announcer, announcer.first_link))
        else:
            loop.run(run_service(loaded, _again(read), announcer))


def read_settings(
    config: Path | None,
    pairs: list[str] | None,
    flags: list[Override],
    choose: Callable[[Settings], tuple[ModelSettings, ...]],
    chosen: frozenset[str],
    entries: Sequence[Entry] = (),
    text: str | None = None,
) -> Loaded:
    """Return the settings to serve by, with the models that the command names."""
    loaded = settings_in_force(config, pairs, *flags, text=text, entries=entries)
    models = choose(loaded.settings)
    if models == loaded.settings.models:
        return replace(loaded, chosen=chosen)
    override = Override("models", msgspec.to_builtins(models), "the command line")
    loaded = settings_in_force(config, pairs, *flags, override, text=loaded.text, entries=entries)
    return replace(loaded, chosen=chosen)


def _again(read: ReadWith) -> ReadWith:
    """The same while the service runs: what the command line asks for may be gone from the file."""

    def again(entries: Sequence[Entry], text: str | None) -> Loaded:
        try:
            return read(entries, text)
        except CommandFailed as error:
            raise SettingsError([Problem("the command line", "", str(error))]) from error

    return again


def chosen_models(
    settings: Settings, ref: str | None, id: str | None, only: list[str] | None, engine: Engine
) -> tuple[ModelSettings, ...]:
    """The models to serve: what the command line says, else all that are configured.

    Without ``engine`` the weights decide.
    """
    if ref is None:
        for flag, said in (("--id names the model", id), ("--engine is that", engine)):
            if said is not None:
                raise CommandFailed(f"{flag} of REF, and there is no REF", ExitCode.USAGE)
        return _only(settings, only) if only else settings.models
    if only:
        raise CommandFailed("give REF or --model, not both", ExitCode.USAGE)
    names = library()
    parsed = names.reference(ref)
    wanted = ref_of(parsed)
    loads = engine or engine_of(settings, wanted)
    known = next(
        (model for model in settings.models if (model.ref, model.engine) == (wanted, loads)), None
    )
    model = known or ModelSettings(id=id_of(parsed), ref=wanted, engine=loads)
    also = [*model.aliases, *names.names_of(parsed, ref)]
    id = id or model.id
    aliases = tuple(name for name in dict.fromkeys(also) if name != id)
    return (msgspec.structs.replace(model, id=id, aliases=aliases),)


def _only(settings: Settings, only: list[str]) -> tuple[ModelSettings, ...]:
    missing = sorted(set(only) - {model.id for model in settings.models})
    if missing and not has_accounts(settings):  # with accounts the database may have it
        known = ", ".join(model.id for model in settings.models)
        raise CommandFailed(
            f"no model has the id {missing[0]}; configured: {known}", ExitCode.CONFIGURATION
        )
    return tuple(model for model in settings.models if model.id in only)


def with_options(
    models: tuple[ModelSettings, ...], options: Mapping[str, int | str | None]
) -> tuple[ModelSettings, ...]:
    """The models with the engine options that were given; vLLM has some of them too."""
    given = {name: value for name, value in options.items() if value is not None}

    def with_given(model: ModelSettings) -> ModelSettings:
        name = model.engine if model.engine in ("openvino", "vllm") else "llamacpp"
        options = getattr(model, name)
        if missing := sorted(given.keys() - set(options.__struct_fields__)):
            flag = missing[0].replace("_", "-")
            raise CommandFailed(f"--{flag} is not for the engine {name}", ExitCode.USAGE)
        return msgspec.structs.replace(model, **{name: msgspec.structs.replace(options, **given)})

    return tuple(with_given(model) for model in models)


def id_of(reference: Reference) -> str:
    """A short id from the name of the weights: ``hf:Qwen/Qwen3-4B-GGUF:Q4_K_M`` is ``qwen3-4b``."""
    name = Path(reference.name).name
    if reference.kind is Kind.PATH:
        name = name.removesuffix(".gguf")
    name = re.sub(r"[-_.]?gguf$", "", name.lower())
    return re.sub(r"[^a-z0-9._-]+", "-", name).strip("-._") or "model"
