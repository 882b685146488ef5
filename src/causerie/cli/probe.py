"""``causerie probe``: what does a provider really do?"""

from __future__ import annotations

from typing import Annotated

import typer

from causerie.cli import command

Seconds = Annotated[
    float, typer.Option("--seconds", min=1, max=3600, help="Time limit for one request.")
]
Total = Annotated[
    float | None,
    typer.Option(
        "--total-seconds",
        min=1,
        help="Time limit for all of a model's questions. [default: 1800; with --quick 60]",
    ),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Ask only what usual clients need, for at most a minute.")
]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", "-m", help="Model id, several times for several models."),
]
Entry = Annotated[
    bool, typer.Option("--entry", help="Print only the entry for the configuration, as TOML.")
]


def probe(
    base_url: Annotated[str, typer.Argument(help="Base URL of the provider, with its /v1.")],
    models: Models = None,
    key: command.KeyText = None,
    key_env: command.KeyName = None,
    key_file: command.KeyFile = None,
    dialect: command.DialectName = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array, all evidence.")] = False,
    entry: Entry = False,
    config: command.Config = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask about the cost.")] = False,
    quick: Quick = False,
    seconds: Seconds = 60.0,
    total_seconds: Total = None,
) -> None:
    """Ask a provider small questions and show what it really does.

    One question for each rule of the interface and each parameter; an effect counts, not that
    a request was accepted. Without `--model`, the first model that the provider lists is asked.
    Without one of the options for a key, the key is that of the provider with this address in
    the configuration, else the variable CAUSERIE_API_KEY is read.

    **Examples**

    `causerie probe http://gpu:8000/v1`

    `causerie probe http://127.0.0.1:8000/v1 --quick`

    `causerie probe https://api.example.org/v1 --key-env EXAMPLE_KEY --model large --entry`
    """
    if entry and (quick or as_json):
        raise command.WrongUsage("--entry needs every answer, and is another form than --json")
    from causerie.cli import probe_run

    address = base_url.rstrip("/")
    providers = command.settings_in_force(config, None).settings.providers
    known = next((one for one in providers if one.base_url.rstrip("/") == address), None)
    run = probe_run.ProbeRun(
        base_url=address,
        models=tuple(models or ()),
        key=probe_run.chosen_key(key, key_env, key_file, known),
        dialect=probe_run.chosen_dialect(dialect, known),
        reach=probe_run.configured_reach(known),
        seconds=seconds,
        total_seconds=total_seconds or (60.0 if quick else 1800.0),
        yes=yes,
        quick=quick,
    )
    probe_run.carry_out(run, entry=entry, as_json=as_json)
