"""Messages of ``causerie serve`` to the person at the terminal: progress, then one block.

They go to stderr alongside the log lines; without a terminal, only whole lines are written.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from rich.console import Console
from rich.status import Status

import causerie
from causerie.cli.progress import DownloadBar
from causerie.engines.base import EngineState, EngineStatus
from causerie.settings import Settings
from causerie.settings.addresses import DoorAddress, default_address, door_addresses, has_accounts
from causerie.settings.front_page import has_chat_page

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


class ConsoleAnnouncer:
    """Follows a start: downloads, loads, ready. ``download`` is told of what is fetched.

    ``settings`` are those that the block is about.
    """

    def __init__(self, settings: Settings, console: Console) -> None:
        self.settings = settings
        self._console = console
        self._status: Status | None = None
        self._first: str | None = None
        self._engines: Sequence[EngineStatus] = ()
        self.download = DownloadBar(console)

    def first_link(self, token: str) -> None:
        """There is nobody yet; this token makes the account of the owner, once."""
        self._first = token

    def loading(self, engines: Sequence[EngineStatus]) -> None:
        """Show how far the loads are; only on a terminal, and not alongside a download's bar."""
        self._engines = engines
        words = [self._words(engine) for engine in engines if engine.state is EngineState.LOADING]
        if self._console.is_terminal:
            self._show("" if self.download.active else ", ".join(words))

    def ready(self, host: str, port: int) -> None:
        """Show the block: address, models, a line to try."""
        self.stop()
        for line in block(self.settings, host, port, self._first, self._engines):
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def stopping(self) -> None:
        self.stop()
        self._console.print(
            "Stopping: running answers may finish; Ctrl-C again ends them.",
            markup=False,
            highlight=False,
        )

    def stop(self) -> None:
        self.download.stop()
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _show(self, text: str) -> None:
        if not text:
            self.stop()
        elif self._status is None:
            self._status = self._console.status(text)
            self._status.start()
        else:
            self._status.update(text)

    @staticmethod
    def _words(engine: EngineStatus) -> str:
        share = f" {engine.progress:.0%}" if engine.progress is not None else ""
        return f"Loading {engine.model}{share}"


_NO_MODELS = "none in the file; add providers on the console"


def block(
    settings: Settings,
    host: str,
    port: int,
    first_link: str | None = None,
    engines: Sequence[EngineStatus] = (),
) -> Sequence[str]:
    """The lines that say how to use the service; ``first_link`` is the owner's token."""
    shown = _EVERYWHERE.get(host, f"[{host}]" if ":" in host else host)
    base = f"http://{shown}:{port}/v1"
    default = default_address(settings)
    others = [door_address for door_address in door_addresses(settings) if door_address != default]
    more = f" and this machine's other {'IPv6 ' if ':' in host else ''}addresses"
    lines = [
        "",
        f"Causerie {causerie.__version__} is ready.",
        "",
        f"  address  {base}" + (more if host in _EVERYWHERE else ""),
        f"  models   {', '.join(default.models) or _NO_MODELS}",
        *_context(engines),
    ]
    if default.models:
        lines.append(f"  try      {_curl(default, base)}")
        lines.append(f"  chat     causerie chat{'' if port == 8000 else f' -u {base}'}")
    if has_chat_page(settings):
        lines.append(f"  page     http://{shown}:{port}/")
    if settings.server.docs:
        lines.append(f"  docs     http://{shown}:{port}/docs")
    if has_accounts(settings) and settings.console.enabled:
        console = f"{settings.console.address or f'http://{shown}:{port}'}/console"
        lines.append(f"  console  {console}")
        if first_link is not None:
            lines += [
                "",
                "Nobody has an account yet. This link makes the owner's, once, within a day:",
            ]
            lines += ["", f"  {console}/link#{first_link}"]
    if len(others) > 1 or any(door_address.models != default.models for door_address in others):
        lines.append(f"  doors    {len(others)} more; `causerie check` lists them")
    return [*lines, "", "Ctrl-C stops it.", ""]


def _context(engines: Sequence[EngineStatus]) -> Sequence[str]:
    """The context in force of each loaded model; none where nothing is loaded yet."""
    loaded = [engine for engine in engines if engine.context is not None]
    told = [
        f"{engine.model}: {engine.context:,} tokens a request, {engine.slots} at a time"
        + (f", {engine.cache_tokens:,} tokens together" if engine.cache_tokens else "")
        for engine in loaded
    ]
    return [f"  context  {'; '.join(told)}"] if told else []


def _curl(door_address: DoorAddress, base: str) -> str:
    exact = [name for name in door_address.models if not name.endswith("*")]
    body = {
        "model": exact[0] if exact else f"{door_address.models[0][:-1]}MODEL",
        "messages": [{"role": "user", "content": "Say hello."}],
    }
    words = ["curl", f"{base}/chat/completions", "-H", "Content-Type: application/json"]
    line = " ".join(shlex.quote(word) for word in words)
    if door_address.door.keys not in (None, "off"):
        line += ' -H "Authorization: Bearer $CAUSERIE_API_KEY"'
    return f"{line} -d {shlex.quote(json.dumps(body))}"
