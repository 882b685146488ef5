"""``causerie run``: chat with a model, fetched and loaded if needed."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from rich.console import Console

from causerie.cli.announcement import ConsoleAnnouncer
from causerie.cli.exits import CommandFailed, ExitCode
from causerie.cli.in_force import settings_in_force
from causerie.cli.names import library
from causerie.cli.options import Config, Context, Set
from causerie.cli.serve import chosen_models, with_options
from causerie.cli.services import services
from causerie.composition.alongside import Address, serving_alongside
from causerie.logging.setup import configure
from causerie.logging.stderr import heedless
from causerie.settings import Loaded, ModelSettings, ServerSettings, Settings

_LOCAL = ServerSettings(host="127.0.0.1", port=0)


@contextmanager
def answering(name: str, context: Context, config: Config, pairs: Set) -> Iterator[tuple[str, str]]:
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
        self.stop()
        self._address.set_result((host, port))

    def stopping(self) -> None:
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
