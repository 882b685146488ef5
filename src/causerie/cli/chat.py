"""``causerie chat`` and ``causerie run``: talk to a model, or ask one question."""

from __future__ import annotations

import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from causerie.cli import command

if TYPE_CHECKING:
    from causerie.cli.services import Service

Thinking = Annotated[
    bool | None,
    typer.Option("--thinking/--no-thinking", help="Turn thinking on or off; else as it is."),
]
System = Annotated[str | None, typer.Option("--system", "-s", help="System message.")]


def chat(
    question: Annotated[list[str] | None, typer.Argument(help=command.QUESTION)] = None,
    base_url: Annotated[
        str, typer.Option("--base-url", "-u", help="Base URL of the provider, with its /v1.")
    ] = command.HERE,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Model id; otherwise the first one.")
    ] = None,
    thinking: Thinking = None,
    system: System = None,
    tools: Annotated[
        Path | None,
        typer.Option("--tools", help="JSON file with tool definitions; you give the results."),
    ] = None,
    plain: command.Plain = False,
) -> None:
    """Chat with any service by its base URL, or ask one question.

    The key for the provider is read from the variable CAUSERIE_API_KEY.
    Ctrl-C stops an answer; Ctrl-D leaves; `/help` lists commands like `/model`.
    Text that is piped goes before the question; stdin is read to its end.

    **Examples**

    `causerie chat`

    `causerie chat "Why is the sky blue?" --no-thinking`

    `git diff | causerie chat "Write a commit message." -u http://gpu:8000/v1`
    """
    from causerie.cli.chat_session import Endpoint, talk
    from causerie.settings.environment import client_key

    asked = question_of(question or ())
    told = _repair_unicode(system)
    endpoint = Endpoint(base_url, client_key(), model)
    talk(asked, lambda: endpoint, thinking=thinking, system=told, tools=tools, plain=plain)


def run(
    name: Annotated[
        str, typer.Argument(help="Short name, reference, or id of a configured or running model.")
    ],
    question: Annotated[list[str] | None, typer.Argument(help=command.QUESTION)] = None,
    context: command.Context = None,
    thinking: Thinking = None,
    system: System = None,
    plain: command.Plain = False,
    config: command.Config = None,
    pairs: command.Set = None,
) -> None:
    """Chat with a model on this machine, or ask one question.

    A running service that has the model answers. Otherwise the model is
    fetched if needed and loaded by a background service, which keeps it for
    the next question (`engines.keep_alive_seconds`). With --context, or if a
    file configures the model, it is loaded for this command alone. Text that
    is piped goes before the question; stdin is read to its end.

    **Examples**

    `causerie run qwen3:0.6b`

    `causerie run smollm2 "Why is the sky blue?"`

    `cat report.txt | causerie run smollm2 "Summarize this."`
    """
    from causerie.cli.chat_session import Endpoint, talk
    from causerie.cli.services import runtime_folder_of_user
    from causerie.composition.control import chatting
    from causerie.settings.environment import client_key

    asked = question_of(question or ())  # what is wrong with it is told before a model is loaded
    with (
        chatting(runtime_folder_of_user()),  # first: a service that is found does not end
        ExitStack() as running,
    ):

        def find() -> Endpoint:
            model = _provide_service_and_model_id(name, context, config, pairs)
            service, id = running.enter_context(model)
            return Endpoint(service.base_url, service.key or client_key(), id)

        system = _repair_unicode(system)
        talk(asked, find, thinking=thinking, system=system, plain=plain, own=True)


# That runs already, in the background from now on, or while the block runs.
@contextmanager
def _provide_service_and_model_id(
    model_name: str, context: command.Context, config: command.Config, overrides: command.Set
) -> Iterator[tuple[Service, str]]:
    from causerie.cli.serve import chosen_models
    from causerie.cli.services import services
    from causerie.settings.tree import DEFAULT_MODEL

    if isinstance(context, int) and context < 1:
        raise command.WrongUsage(f"--context takes a number from 1, and got {context}")
    known = command.library()
    for service in services():
        if service.facts.background and (context is not None or service.outdated):
            continue
        for found in service.models(model_name, known):
            service.load(found.id)
            yield service, found.id
            return
    settings = command.settings_in_force(config, overrides).settings
    if any(model.id == model_name for model in settings.models if model != DEFAULT_MODEL):
        [model] = chosen_models(settings, None, None, [model_name], None)
    else:
        [model] = chosen_models(settings, model_name, None, None, None)
        if context is None and settings.engines.keep_alive_seconds:
            from causerie.cli.background import started

            service, id = started(settings, model)
            service.load(id)
            yield service, id
            return
    from causerie.cli.background import alone
    from causerie.cli.serve import with_options

    [model] = with_options((model,), {"context": context})
    with alone(settings, model) as service:
        service.load(model.id)
        yield service, model.id


_MOST_PIPED = 16 * 2**20  # bytes; no service takes more by default
_PATIENCE_SECONDS = 3.0


def question_of(words: Sequence[str], patience: float = _PATIENCE_SECONDS) -> str | None:
    """Return the one question of arguments and stdin, or ``None`` for a conversation.

    What is piped stands in the place of the word ``-``, and without that word before the others. A
    pipe is read to its end, however long that takes; after ``patience`` seconds without anything
    in it a note says so.
    """
    reads = "-" in words
    at = words.index("-") if reads else 0
    before, after = (_repair_unicode(" ".join(some)) for some in (words[:at], words[at + reads :]))
    if sys.stdin is None:
        if reads or not words:
            raise command.WrongUsage("stdin is closed; ask with an argument")
        return after
    if sys.stdin.isatty() and not reads:
        return after if words else None
    parts = [part for part in (before, _read_stdin_text(patience), after) if part]
    if not parts:
        raise command.WrongUsage("stdin held no question")
    return "\n\n".join(parts)


# A shell passes any bytes.
def _repair_unicode(argument: str | None) -> str | None:
    return argument and argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _read_stdin_text(notice_delay: float) -> str:
    with suppress(OSError, ValueError):  # no file, or one that cannot be waited for
        if not sys.stdin.isatty() and not select.select([sys.stdin], [], [], notice_delay)[0]:
            words = "causerie: waiting for the end of stdin; `< /dev/null` asks without it"
            typer.echo(words, err=True)
    raw = sys.stdin.buffer.read(_MOST_PIPED + 1)
    if len(raw) > _MOST_PIPED:
        size = f"{_MOST_PIPED // 2**20} MiB"
        raise command.WrongUsage(f"stdin holds more than {size}; pipe less text")
    if b"\0" in raw:  # as git and grep tell
        raise command.WrongUsage("stdin holds binary data; pipe text")
    return raw.decode("utf-8", "replace").replace("\r\n", "\n").strip()
