"""The command ``causerie``: which commands there are, and in which order.

A command is imported when it runs or explains itself, so that the list of all comes at once.
Knows nothing of what commands do.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer

import causerie
from causerie.cli.help import HelpCommand, HelpGroup


class CommandEntry(NamedTuple):
    """One command: its module in ``commands``, what there is the command, and its summary.

    ``function`` names a function, or the Typer application of a group.
    """

    module: str
    function: str
    summary: str


COMMANDS: Mapping[str, CommandEntry] = {
    "serve": CommandEntry("serve", "serve", "Serve a model: fetch it if needed, load it, answer."),
    "run": CommandEntry("run", "run", "Chat with a model on this machine, or ask one question."),
    "pull": CommandEntry("pull", "pull", "Fetch weights into the cache, and print where they are."),
    "list": CommandEntry(
        "cached", "show_list", "List the weights in the cache: name, size, quantization, last use."
    ),
    "show": CommandEntry(
        "show", "show", "Show facts of a model, and how it would run on this machine."
    ),
    "ps": CommandEntry(
        "services", "ps", "Show the running services of this user, and their models."
    ),
    "stop": CommandEntry(
        "services", "stop", "Stop a running service, as Ctrl-C does: running answers may finish."
    ),
    "rm": CommandEntry("remove", "remove", "Delete weights from the cache, after a question."),
    "models": CommandEntry(
        "models", "models", "List the configured models, and the weights in the cache."
    ),
    "init": CommandEntry("init", "init", "Write a first configuration, with comments."),
    "check": CommandEntry(
        "check",
        "check",
        "Check the configuration and show what is set, and where each value comes from.",
    ),
    "export": CommandEntry(
        "export_config",
        "export_config",
        "Write the entries of the configuration that the database holds, as a file.",
    ),
    "import": CommandEntry(
        "import_config",
        "import_config",
        "Take entries of a file over into the database, or LiteLLM's configuration into a file.",
    ),
    "reload": CommandEntry(
        "reload", "reload", "Tell a running service to read its configuration anew."
    ),
    "chat": CommandEntry("chat", "chat", "Chat in the terminal, or ask one question."),
    "probe": CommandEntry(
        "probe", "probe", "Ask a provider small questions and show what it really does."
    ),
    "key": CommandEntry(
        "key", "key", "Make a new key, and the digest that goes into the configuration."
    ),
    "migrate": CommandEntry(
        "migrate", "migrate", "Bring the tables of the database to the version of this program."
    ),
    "users": CommandEntry("users", "app", "Who has an account."),
    "projects": CommandEntry("projects", "app", "What keys, members and usage belong to."),
    "keys": CommandEntry("keys", "app", "Keys of projects, in the database."),
}


class _CommandsOnDemand(HelpGroup):
    """A group whose commands are placeholders with a summary, until one of them is asked for."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, command in COMMANDS.items():
            self.add_command(HelpCommand(name, help=command.summary))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Import the command that the arguments name."""
        name, placeholder, rest = super().resolve_command(ctx, args)
        return name, placeholder and loaded(str(name)), rest


def loaded(name: str) -> Any:
    """Return a command with its options, as Typer makes it; import its module."""
    command = COMMANDS[name]
    found = getattr(import_module(f"causerie.cli.commands.{command.module}"), command.function)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    if isinstance(found, typer.Typer):
        for each in found.registered_commands:
            each.cls = HelpCommand
        alone.add_typer(found, name=name, cls=HelpGroup)
        return typer.main.get_group(alone).commands[name]
    alone.command(name, cls=HelpCommand)(found)
    return typer.main.get_command(alone)


app = typer.Typer(
    name="causerie",
    cls=_CommandsOnDemand,
    no_args_is_help=True,
    rich_markup_mode=None,
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
