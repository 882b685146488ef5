"""The command ``causerie``: its commands in their order, and the text of ``--help``.

A command is imported when it runs or explains itself, so that the list of all comes at once.
Help is written without Rich, whose import takes longer than all the rest. It is Markdown, of
which paragraphs, `code` and the list behind **Examples** are known.
"""

from __future__ import annotations

import inspect
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

import causerie

_NARROWEST, _WIDEST = 24, 100
_FIRST_COLUMN = 30  # a longer name has its explanation on the next line
_CODE = re.compile(r"`([^`]+)`")
_EXAMPLES = "**Examples**"


class _HelpCommand(TyperCommand):
    def get_help(self, ctx: Any) -> str:
        return _help_text(self, ctx)

    def invoke(self, ctx: Any) -> Any:
        from causerie.cli.command import reporting

        with reporting():
            return super().invoke(ctx)


# It is shown without importing pydantic.
class _HelpGroup(TyperGroup):
    def get_help(self, ctx: Any) -> str:
        return _help_text(self, ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments. Typer's own flags get a default; without, it imports pydantic."""
        for option in self.get_params(ctx):
            flag = isinstance(option, TyperOption) and option.type_descriptor.annotation is bool
            if flag and option.default is None:
                option.default = False
        return super().parse_args(ctx, args)


def _help_text(command: Any, ctx: Any) -> str:
    width = max(_NARROWEST, min(shutil.get_terminal_size().columns, _WIDEST))
    usage = " ".join((ctx.command_path, *command.collect_usage_pieces(ctx)))
    parts = [f"{_bold('Usage:')} {usage}", *_wrapped_paragraphs(command.help or "", width)]
    for title, rows in _parameter_tables(command, ctx):
        parts.append("\n".join((_bold(f"{title}:"), *_two_columns(rows, width))))
    return "\n\n".join(parts)


def _wrapped_paragraphs(text: str, width: int) -> Iterator[str]:
    before, _, examples = inspect.cleandoc(text).partition(_EXAMPLES)
    for paragraph in before.split("\n\n"):
        if paragraph.strip():
            yield _with_bold_code(textwrap.fill(" ".join(paragraph.split()), width))
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    if lines:
        found = [(line, _CODE.fullmatch(line)) for line in lines]
        shown = (alone[1] if alone else _with_bold_code(line) for line, alone in found)
        yield "\n".join((_bold("Examples:"), *(f"  {line}" for line in shown)))


def _parameter_tables(command: Any, ctx: Any) -> Iterator[tuple[str, Sequence[tuple[str, str]]]]:
    parameters = command.get_params(ctx)
    for title, kind in (("Arguments", "argument"), ("Options", "option")):
        asked = (each for each in parameters if each.param_type_name == kind)
        rows = [row for each in asked if (row := each.get_help_record(ctx)) is not None]
        if rows:
            yield title, rows
    if commands := getattr(command, "commands", {}):
        first = {name: inspect.cleandoc(each.help or "") for name, each in commands.items()}
        yield (
            "Commands",
            [(name, " ".join(text.split("\n\n")[0].split())) for name, text in first.items()],
        )


def _two_columns(rows: Sequence[tuple[str, str]], width: int) -> Iterable[str]:
    column = min(4 + min(_FIRST_COLUMN, max(len(name) for name, _ in rows)), width // 2)
    for name, words in rows:
        lines = textwrap.wrap(words, width - column) or [""]
        head = f"  {name}"
        if len(head) > column - 2:
            yield head
            head = ""
        yield _with_bold_code(
            "\n".join((f"{head:{column}}{lines[0]}", *(" " * column + line for line in lines[1:])))
        ).rstrip()


def _with_bold_code(text: str) -> str:
    return _CODE.sub(lambda found: _bold(found[1]), text)


def _bold(text: str) -> str:
    return typer.style(text, bold=True)


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
        alone.add_typer(found, name=name, cls=_HelpGroup)
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


def _print_version(wanted: bool) -> None:
    if wanted:
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
