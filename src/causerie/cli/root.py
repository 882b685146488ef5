"""The command ``causerie``: which commands there are, and in which order.

Knows nothing of what they do.
"""

from __future__ import annotations

from typing import Annotated

import typer

import causerie
from causerie.cli import (
    bench,
    cached,
    chat,
    check,
    import_config,
    key,
    keys,
    migrate,
    models,
    probe,
    projects,
    pull,
    reload,
    remove,
    run,
    serve,
    services,
    show,
    users,
)

app = typer.Typer(
    name="causerie",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"causerie {causerie.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Chat completions that just work: serve a model with one command.

    `causerie serve` fetches a small model at the first start and serves it on
    http://127.0.0.1:8000/v1.
    """


app.command("serve")(serve.serve)
app.command("run")(run.run)
app.command("pull")(pull.pull)
app.command("list")(cached.show_list)
app.command("show")(show.show)
app.command("ps")(services.ps)
app.command("stop")(services.stop)
app.command("rm")(remove.remove)
app.command("models")(models.models)
app.command("check")(check.check)
app.command("import")(import_config.import_config)
app.command("reload")(reload.reload)
app.command("chat")(chat.chat)
app.command("probe")(probe.probe)
app.command("bench")(bench.bench)
app.command("key")(key.key)
app.command("migrate")(migrate.migrate)
app.add_typer(users.app, name="users")
app.add_typer(projects.app, name="projects")
app.add_typer(keys.app, name="keys")
