"""``causerie run``: chat with a model, fetched and loaded if needed."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from causerie.cli.announcement import ConsoleAnnouncer
from causerie.cli.chat import Plain, chat
from causerie.cli.exits import CommandFailed, ExitCode, reporting
from causerie.cli.names import library
from causerie.cli.options import Config, Set, settings_in_force
from causerie.cli.serve import Context, chosen_models, with_options
from causerie.cli.services import services
from causerie.cli.stderr import heedless
from causerie.composition.alongside import Address, serving_alongside
from causerie.logging.setup import configure
from causerie.settings import Loaded, ModelSettings, ServerSettings, Settings

_LOCAL = ServerSettings(host="127.0.0.1", port=0)


def run(
    name: Annotated[
        str, typer.Argument(help="Short name, reference, or id of a configured or running model.")
    ],
    prompt: Annotated[
        str | None, typer.Argument(help="Ask this and leave; `-` or a pipe reads it from stdin.")
    ] = None,
    context: Context = None,
    thinking: Annotated[
        bool | None,
        typer.Option("--thinking/--no-thinking", help="Turn thinking on or off; else as it is."),
    ] = None,
    system: Annotated[str | None, typer.Option("--system", "-s", help="System message.")] = None,
    plain: Plain = False,
    config: Config = None,
    pairs: Set = None,
) -> None:
    """Chat with a model on this machine, or ask one question.

    A running service that has the model answers. Otherwise the model is
    fetched if needed, and loaded for as long as the command runs.

    **Examples**

    `causerie run qwen3:0.6b`

    `causerie run smollm2 "Why is the sky blue?"`

    `git diff | causerie run qwen3:4b --system "Write a commit message."`
    """
    with reporting(), _answering(name, context, config, pairs) as (base_url, model):
        chat(prompt, base_url=base_url, model=model, thinking=thinking, system=system, plain=plain)


@contextmanager
def _answering(
    name: str, context: Context, config: Config, pairs: Set
) -> Iterator[tuple[str, str]]:
    """Yield the base URL and the id of the model, running already or for this command."""
    if isinstance(context, int) and context < 1:
        raise CommandFailed(f"--context takes a number from 1, and got {context}", ExitCode.USAGE)
    known = library()
    for service in services():
        for found in service.models(name, known):
            yield service.base_url, found.id
            return
    settings = settings_in_force(config, pairs).settings
    model = with_options(_chosen(settings, name), {"context": context})[0]
    local = Settings(
        server=_LOCAL, models=(model,), engines=settings.engines, weights=settings.weights
    )
    configure("warning", "auto")
    address: Address = Address()
    announcer = _Announcer(local, address)
    with heedless(), _ended_by_signal(), serving_alongside(Loaded(local), announcer, address) as at:
        yield f"http://{at[0]}:{at[1]}/v1", model.id


def _chosen(settings: Settings, name: str) -> tuple[ModelSettings, ...]:
    if any(model.id == name for model in settings.models):
        return chosen_models(settings, None, None, [name], None)
    return chosen_models(settings, name, None, None, None)


class _Announcer(ConsoleAnnouncer):
    """Shows downloads and loads, and nothing of the service itself."""

    def __init__(self, settings: Settings, address: Address) -> None:
        super().__init__(settings, Console(stderr=True))
        self._address = address

    def ready(self, host: str, port: int) -> None:
        """The model is loaded."""
        self.stop()
        self._address.set_result((host, port))

    def stopping(self) -> None:
        """The chat is over."""
        self.stop()


@contextmanager
def _ended_by_signal() -> Iterator[None]:
    """Leave the block by SIGTERM, so that the model is unloaded in order."""

    def leave(number: int, _: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
