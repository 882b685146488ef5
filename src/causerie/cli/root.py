"""The command ``causerie``: its commands in their order, and the text of ``--help``.

A command is imported when it runs or explains itself, so that the list of all comes at once.
Help is written without Rich, whose import takes longer than all the rest. It is Markdown, of
which paragraphs, `code` and the list behind **Examples** are known.
"""

from __future__ import annotations

import inspect
import re
import shutil
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

import causerie

_NARROWEST, _WIDEST = 24, 100
_LONGEST_NAME = 30  # a longer one has its explanation on the next line
_CODE = re.compile(r"`([^`]+)`")
_HEADING = re.compile(r"^(Usage|Examples|Arguments|Options|Commands):", re.MULTILINE)


class _HelpCommand(TyperCommand):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        _format_help(self, ctx, formatter)

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the first paragraph of the command's help as one line, without cutting it."""
        return " ".join(inspect.cleandoc(self.help or "").split("\n\n")[0].split())

    def invoke(self, ctx: Any) -> Any:
        from causerie.cli.command import reporting

        with reporting():
            return super().invoke(ctx)


# Its help is shown without importing pydantic, as Typer does for a flag without a default.
class _HelpGroup(TyperGroup):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        _format_help(self, ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give boolean options without a default the default false, and parse the arguments."""
        for option in self.get_params(ctx):
            flag = isinstance(option, TyperOption) and option.type_descriptor.annotation is bool
            if flag and option.default is None:
                option.default = False
        return super().parse_args(ctx, args)


def _format_help(command: TyperCommand | TyperGroup, ctx: Any, formatter: Any) -> None:
    formatter.width = max(_NARROWEST, min(shutil.get_terminal_size().columns, _WIDEST))
    widest_name = min(_LONGEST_NAME, formatter.width // 2 - 4)
    formatter.write_dl = partial(formatter.write_dl, col_max=widest_name)
    command.format_usage(ctx, formatter)
    words, _, examples = inspect.cleandoc(command.help or "").partition("**Examples**")
    formatter.write_paragraph()
    formatter.write_text(words)
    if examples:
        with formatter.section("Examples"):
            for line in filter(None, map(str.strip, examples.splitlines())):
                alone = _CODE.fullmatch(line)
                formatter.write(f"  {alone[1] if alone else line}\n")
    command.format_options(ctx, formatter)
    plain = _HEADING.sub(lambda found: typer.style(found[0], bold=True), formatter.getvalue())
    formatter.buffer = [_CODE.sub(lambda found: typer.style(found[1], bold=True), plain)]


class Command(NamedTuple):
    """A command: its summary, its module, and the function or Typer application there.

    Those have its own name unless another one is given.
    """

    summary: str
    module: str = ""
    function: str = ""


COMMANDS: Mapping[str, Command] = {
    "serve": Command("Serve models: fetch them if needed, load them, answer."),
    "run": Command("Chat with a model on this machine, or ask one question.", "chat"),
    "pull": Command("Fetch weights into the cache, and print where they are.", "models"),
    "list": Command(
        "List the weights in the cache: name, size, quantization, last use.", "models", "show_list"
    ),
    "show": Command("Show facts of a model, and how it would run on this machine.", "models"),
    "ps": Command("Show the running services of this user, and their models.", "services"),
    "stop": Command(
        "Stop a running service, as Ctrl-C does, or unload one of its models.", "services"
    ),
    "service": Command("Start the service when you log in, by systemd or launchd."),
    "rm": Command("Delete weights from the cache, after a question.", "models", "remove"),
    "models": Command("List the configured models, and the weights in the cache."),
    "init": Command("Write a first configuration, with comments."),
    "check": Command(
        "Check the configuration and show what is set, and where each value comes from.",
        "configuration",
    ),
    "export": Command(
        "Write the entries of the configuration that the database holds, as a file.",
        "configuration",
        "export_config",
    ),
    "import": Command(
        "Take entries of a file over into the database, or LiteLLM's configuration into a file.",
        "configuration",
        "import_config",
    ),
    "prices": Command("Prices of models, and the price list."),
    "reload": Command("Tell a running service to read its configuration anew.", "services"),
    "chat": Command("Chat with any service by its base URL, or ask one question."),
    "probe": Command("Ask a provider small questions and show what it really does."),
    "key": Command("Make a new key, and the digest that goes into the configuration.", "keys"),
    "migrate": Command(
        "Bring the tables of the database to the version of this program.", "accounts"
    ),
    "users": Command("Who has an account.", "accounts"),
    "projects": Command("What keys, members and usage belong to.", "accounts"),
    "keys": Command("Keys of projects, in the database."),
}


class _CommandsOnDemand(_HelpGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, command in COMMANDS.items():
            self.add_command(_HelpCommand(name, help=command.summary))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        name, placeholder, rest = super().resolve_command(ctx, args)
        return name, placeholder and loaded(str(name)), rest


def loaded(name: str) -> Any:
    """Import the module of a command; return the command as Typer builds it."""
    command = COMMANDS[name]
    found = getattr(
        import_module(f"causerie.cli.{command.module or name}"), command.function or name
    )
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    if isinstance(found, typer.Typer):
        for each in found.registered_commands:
            each.cls = _HelpCommand
        alone.add_typer(
            found, name=name, cls=_HelpGroup, help=command.summary, no_args_is_help=True
        )
        return typer.main.get_group(alone).commands[name]
    alone.command(name, cls=_HelpCommand)(found)
    return typer.main.get_command(alone)


app = typer.Typer(
    name="causerie",
    cls=_CommandsOnDemand,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"causerie {causerie.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Chat completions that just work: serve a model with one command.

    `causerie serve` fetches a small model at the first start and serves it on
    http://127.0.0.1:8000/v1.
    """
