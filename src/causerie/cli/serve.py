"""``causerie serve``: fetch a model if needed, load it, serve it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from causerie.cli.command import (
    CommandFailed,
    Config,
    Context,
    Engine,
    ExitCode,
    Set,
    WrongUsage,
    library,
    ref_of,
    reference_of,
    settings_in_force,
)

if TYPE_CHECKING:
    from causerie.settings.entries import Entry, ReadWith
    from causerie.settings.load import Loaded, Override
    from causerie.settings.tree import ModelSettings, Settings


Refs = Annotated[
    list[str] | None,
    typer.Argument(help="Short names, hf:org/repo[:file or quant], pypi:NAME, or paths."),
]
Id = Annotated[
    str | None, typer.Option("--id", help="Model id for REF; otherwise made from its name.")
]
Only = Annotated[
    list[str] | None,
    typer.Option("--model", "-m", help="Serve only this configured model; may be repeated."),
]
Host = Annotated[str | None, typer.Option("--host", help="Address to listen on.")]
Port = Annotated[str | None, typer.Option("--port", "-p", help="Port; 0 takes a free one.")]
Keys = Annotated[
    str | None, typer.Option("--keys", help="`off`, `accounts`, or digests from `causerie key`.")
]
Parallel = Annotated[int | None, typer.Option("--parallel", help="Requests at the same time.")]
Threads = Annotated[int | None, typer.Option("--threads", help="CPU threads.")]
Workers = Annotated[
    str | None, typer.Option("--workers", help="Worker processes; `auto`: one for each core.")
]
GpuLayers = Annotated[
    int | None, typer.Option("--gpu-layers", help="Layers on the GPU; 0 for none.")
]


def serve(
    refs: Refs = None,
    engine: Engine = None,
    id: Id = None,
    model: Only = None,
    host: Host = None,
    port: Port = None,
    keys: Keys = None,
    context: Context = None,
    parallel: Parallel = None,
    threads: Threads = None,
    gpu_layers: GpuLayers = None,
    workers: Workers = None,
    config: Config = None,
    pairs: Set = None,
) -> None:
    """Serve models: fetch them if needed, load them, answer.

    Without REF and without a configuration all models that were pulled are
    served by their names, on http://127.0.0.1:8000/v1: each is loaded when a
    request names it. If none was pulled, a small one (98 MB) is fetched.

    **Examples**

    `causerie serve`

    `causerie serve qwen3:4b --port 9000`

    `causerie serve qwen3:4b gemma3:4b`

    `causerie serve hf:Qwen/Qwen3-8B --engine vllm --context 8192 --parallel 4`

    `causerie serve --config causerie.toml --model small`
    """
    from causerie.cli.cached_models import served_models

    server = {"host": host, "port": port, "keys": keys, "workers": workers}
    flags = _flag_overrides(server, refs or model)
    options = {
        "context": context,
        "parallel": parallel,
        "threads": threads,
        "gpu_layers": gpu_layers,
    }

    def choose(settings: Settings) -> tuple[ModelSettings, ...]:
        return with_options(served_models(settings, refs or (), id, model, engine), options)

    read = partial(read_settings, config, pairs, flags, choose, frozenset(model or ()))
    _serve_until_stopped(read)


def _flag_overrides(options: Mapping[str, str | None], models: list[str] | None) -> list[Override]:
    from causerie.settings.load import Override

    given = {name: value for name, value in options.items() if value is not None}
    flags = [Override(f"server.{name}", given[name], f"--{name}") for name in given]
    return [*flags, Override("weights.serve", False, "the command line")] if models else flags


def _serve_until_stopped(load_settings: ReadWith) -> None:
    from rich.console import Console

    from causerie.cli.announcement import ConsoleAnnouncer, LogAnnouncer
    from causerie.composition.app import run_service, run_worker
    from causerie.composition.control import own_place
    from causerie.composition.entries import checked
    from causerie.composition.supervisor import supervise
    from causerie.observe.logging import configure, heedless, lines_of
    from causerie.settings.environment import no_colour
    from causerie.settings.problems import Problem, SettingsError
    from causerie.settings.rules import worker_count

    def again(entries: Sequence[Entry], text: str | None) -> Loaded:
        try:
            return load_settings(entries, text)
        except CommandFailed as error:
            raise SettingsError([Problem("the command line", "", str(error))]) from error

    loaded, _ = checked(lambda: load_settings((), None), commands=False)
    with heedless():
        logging = loaded.settings.logging
        configure(logging.level, logging.format, colours=not no_colour())
        _, is_json = lines_of()
        announced = LogAnnouncer if is_json else ConsoleAnnouncer
        announcer = announced(loaded.settings, Console(stderr=True))
        place = own_place()
        if place is not None:
            run_on_loop(run_worker(loaded, again, place))
        elif worker_count(loaded.settings.server) > 1:
            run_on_loop(supervise(loaded, sys.argv[1:], announcer))
        else:
            run_on_loop(run_service(loaded, again, announcer))


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
    import msgspec

    from causerie.settings.load import Override

    loaded = settings_in_force(config, pairs, *flags, text=text, entries=entries)
    models, serve = choose(loaded.settings), loaded.settings.weights.serve
    if models != loaded.settings.models:
        named = Override("models", msgspec.to_builtins(models), "the command line")
        more = (*flags, named, Override("weights.serve", serve, "the command line"))
        loaded = settings_in_force(config, pairs, *more, text=loaded.text, entries=entries)
    return replace(loaded, chosen=chosen)


def chosen_models(
    settings: Settings, ref: str | None, id: str | None, only: list[str] | None, engine: Engine
) -> tuple[ModelSettings, ...]:
    """Return the one model of REF, else those that ``only`` names, else all configured models.

    Without ``engine`` the weights decide.
    """
    import msgspec

    from causerie.composition.engine_makers import engine_of
    from causerie.settings.doors import has_accounts
    from causerie.settings.tree import ModelSettings

    if ref is None:
        for flag, said in (("--id names the model", id), ("--engine is that", engine)):
            if said is not None:
                raise WrongUsage(f"{flag} of REF, and there is no REF")
        if not only:
            return settings.models
        missing = sorted(set(only) - {model.id for model in settings.models})
        if missing and not has_accounts(settings):  # with accounts the database may have it
            known = ", ".join(model.id for model in settings.models)
            words = f"no model has the id {missing[0]}; configured: {known}"
            raise CommandFailed(words, ExitCode.CONFIGURATION)
        return tuple(model for model in settings.models if model.id in only)
    if only:
        raise WrongUsage("give REF or --model, not both")
    names = library()
    parsed = reference_of(settings, ref)
    wanted = ref_of(parsed)
    loads = engine or engine_of(settings, wanted)
    same = (each for each in settings.models if (each.ref, each.engine) == (wanted, loads))
    model = next(same, ModelSettings(id=names.id_of(parsed), ref=wanted, engine=loads))
    also = [*model.aliases, *names.names_of(parsed)]
    id = id or model.id
    aliases = tuple(name for name in dict.fromkeys(also) if name != id)
    return (msgspec.structs.replace(model, id=id, aliases=aliases),)


def with_options(
    models: tuple[ModelSettings, ...], options: Mapping[str, int | str | None]
) -> tuple[ModelSettings, ...]:
    """Return the models with these engine options set; raise ``WrongUsage`` for a wrong option."""
    import msgspec

    given = {name: value for name, value in options.items() if value is not None}

    changed = []
    for model in models:
        name = model.engine if model.engine in ("openvino", "vllm") else "llamacpp"
        own = getattr(model, name)
        if missing := sorted(given.keys() - set(own.__struct_fields__)):
            flag = missing[0].replace("_", "-")
            raise WrongUsage(f"--{flag} is not for the engine {name}")
        own = msgspec.structs.replace(own, **given)
        changed.append(msgspec.structs.replace(model, **{name: own}))
    return tuple(changed)


def run_on_loop(main: Coroutine[object, object, None]) -> None:
    """Run a coroutine to its end on a new event loop: uvloop's where the system has it."""
    import asyncio

    _raise_open_file_limit()
    factory = None
    if sys.platform != "win32":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)


# Each connection needs a file descriptor. Shells and service managers allow 1024 by default.
def _raise_open_file_limit() -> None:
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 65_536 if hard == resource.RLIM_INFINITY else min(65_536, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):  # some systems allow less than they report
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
