"""Messages of a start to the person at the terminal: downloads, loads, then one block.

They go to stderr alongside the log lines, and where those are JSON they are log lines too. Without
a terminal only whole lines are written, one at the start and one at the end of a download, so that
logs stay readable.
"""

from __future__ import annotations

import io
import json
import shlex
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import segno
import structlog
from rich import progress
from rich.console import Console
from rich.status import Status

import causerie
from causerie.cli.command import ANY_ADDRESS, local_url
from causerie.engines.base import EngineState, EngineStatus
from causerie.settings import doors
from causerie.settings.provider import is_loopback
from causerie.settings.tree import Settings


class ConsoleAnnouncer:
    """Reports a start at the terminal: downloads, loads, then how to use the service.

    ``settings`` are those that the block is about.
    """

    def __init__(self, settings: Settings, console: Console) -> None:
        self.settings = settings
        self._console = console
        self._load_spinner: Status | None = None
        self._sign_up_token: str | None = None
        self._last_engine_status_list: Sequence[EngineStatus] = ()
        self.download = DownloadBar(console)

    def first_link(self, token: str) -> None:
        """Remember the token of the link by which the owner creates the first account."""
        self._sign_up_token = token

    def loading(self, engines: Sequence[EngineStatus]) -> None:
        """Show the progress of model loads on a terminal, while it has no download's bar."""
        self._last_engine_status_list = engines
        words = [
            f"Loading {engine.model}"
            + (f" {engine.progress:.0%}" if engine.progress is not None else "")
            for engine in engines
            if engine.state is EngineState.LOADING
        ]
        text = "" if self.download.active else ", ".join(words)
        if not self._console.is_terminal:
            return
        if not text:
            self.stop()
        elif self._load_spinner is None:
            self._load_spinner = self._console.status(text)
            self._load_spinner.start()
        else:
            self._load_spinner.update(text)

    def ready(self, host: str, port: int) -> None:
        """Print how to use the service: address, models, a command to try."""
        self.stop()
        lines = block(self.settings, host, port, self._sign_up_token, self._last_engine_status_list)
        if self._console.is_terminal and doors.has_chat_page(self.settings):
            lines = [*lines, *_render_qr_code(host, port)]
        for line in lines:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def stopping(self) -> None:
        self.stop()
        words = "Stopping: running answers may finish; Ctrl-C again ends them."
        self._console.print(words, markup=False, highlight=False)

    def stop(self) -> None:
        self.download.close()
        if self._load_spinner is not None:
            self._load_spinner.stop()
            self._load_spinner = None


log = structlog.get_logger(__name__)


class LogAnnouncer(ConsoleAnnouncer):
    """Reports a start in the log, whose every line is JSON."""

    def __init__(self, settings: Settings, console: Console) -> None:
        super().__init__(settings, console)
        self.download = DownloadBar(console, log.info)

    def loading(self, engines: Sequence[EngineStatus]) -> None:
        del engines  # a load that fails has a line of its own

    def ready(self, host: str, port: int) -> None:
        url, settings = local_url(host, port), self.settings
        facts = {"version": causerie.__version__, "address": f"{url}/v1"}
        if doors.has_accounts(settings) and settings.console.enabled:
            facts["console"] = console = f"{settings.console.address or url}/console"
            if self._sign_up_token is not None:
                words = "nobody has an account yet; this link makes the owner's, once, within a day"
                log.warning(words, link=f"{console}/link#{self._sign_up_token}")
        log.info("ready", **facts, models=list(doors.default_address(settings).models))

    def stopping(self) -> None:
        log.info("stopping: running answers may finish")


def block(
    settings: Settings,
    host: str,
    port: int,
    first_link: str | None = None,
    engines: Sequence[EngineStatus] = (),
) -> Sequence[str]:
    """Return the lines that show how to use the service; ``first_link`` is the owner's token."""
    url = local_url(host, port)
    base = f"{url}/v1"
    default = doors.default_address(settings)
    others = [each for each in doors.door_addresses(settings) if each != default]
    lines = [
        "",
        f"Causerie {causerie.__version__} is ready.",
        "",
        f"  address  {base}",
        *(f"           {each}/v1" for each in _list_network_urls(host, port)),
        "  models   "
        + (", ".join(default.models) or "none in the file; add providers on the console"),
    ]
    loaded = [
        f"{engine.model}: {engine.context:,} tokens a request, {engine.slots} at a time"
        + (f", {engine.cache_tokens:,} tokens together" if engine.cache_tokens else "")
        for engine in engines
        if engine.context is not None
    ]
    if loaded:
        lines.append(f"  context  {'; '.join(loaded)}")
    if default.models:
        lines.append(f"  try      {_build_curl_example(default, base)}")
        lines.append(f"  chat     causerie chat{'' if port == 8000 else f' -u {base}'}")
    lines += _format_page_urls(settings, host, port)
    if doors.has_accounts(settings) and settings.console.enabled:
        console = f"{settings.console.address or url}/console"
        lines.append(f"  console  {console}")
        if first_link is not None:
            lines += [
                "",
                "Nobody has an account yet. This link makes the owner's, once, within a day:",
            ]
            lines += ["", f"  {console}/link#{first_link}"]
    differ = any(each.models != default.models for each in others)
    if not settings.weights.serve and (len(others) > 1 or differ):
        lines.append(f"  doors    {len(others)} more; `causerie check` lists them")
    return [*lines, "", "Ctrl-C stops it.", ""]


def _format_page_urls(settings: Settings, host: str, port: int) -> Iterator[str]:
    url = local_url(host, port)
    if doors.has_chat_page(settings):
        yield f"  page     {url}/"
        yield from (f"           {each}/" for each in _list_network_urls(host, port))
    elif settings.server.chat_page is None and not doors.has_accounts(settings):
        yield "  page     off beside keys; `--set server.chat_page=true` serves it"
    if settings.server.docs:
        yield f"  docs     {url}/docs"


def _list_network_urls(host: str, port: int) -> Sequence[str]:
    return network_urls(host, port) if host in ANY_ADDRESS else ()


def _render_qr_code(host: str, port: int) -> Iterator[str]:
    if not is_loopback(host):
        page = f"{network_urls(host, port)[0]}/"
        yield from (f"Scan this to chat on a phone: {page}", "", *qr_lines(page), "")


def _build_curl_example(door_address: doors.DoorAddress, url: str) -> str:
    exact = [name for name in door_address.models if not name.endswith("*")]
    body = {
        "model": exact[0] if exact else f"{door_address.models[0][:-1]}MODEL",
        "messages": [{"role": "user", "content": "Say hello."}],
    }
    line = shlex.join(("curl", f"{url}/chat/completions", "-H", "Content-Type: application/json"))
    if door_address.door.keys not in (None, "off"):
        line += ' -H "Authorization: Bearer $CAUSERIE_API_KEY"'
    return f"{line} -d {shlex.quote(json.dumps(body))}"


# Addresses at which other devices of the network reach a service, and their QR code.

# Nothing is sent there: the system only says from which of its addresses it would be (RFC 5737,
# RFC 3849).
_ELSEWHERE = {
    "0.0.0.0": (socket.AF_INET, "192.0.2.1"),
    "::": (socket.AF_INET6, "2001:db8::1"),
}
_MARGIN = 2  # modules around a code; fewer than ISO/IEC 18004 asks for, which readers tolerate


def network_urls(host: str, port: int) -> Sequence[str]:
    """Return the URLs of a service that listens at ``host``, as other devices may open them.

    The last one has the name of this machine, which the network may know by multicast DNS.
    """
    if host not in _ELSEWHERE:
        return (local_url(host, port),)
    family, elsewhere = _ELSEWHERE[host]
    name = socket.gethostname().partition(".")[0].lower()
    urls = [f"http://{name}.local:{port}"]
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((elsewhere, 9))
        urls.insert(0, local_url(probe.getsockname()[0], port))
    return urls


def qr_lines(text: str) -> Sequence[str]:
    """Return the rows of a QR code for a dark terminal, two modules high each."""
    drawn = io.StringIO()
    segno.make(text, micro=False).terminal(drawn, border=_MARGIN, compact=True)
    return drawn.getvalue().splitlines()


class DownloadBar:
    """Shows the progress of one download after another, as a bar or as lines to ``log_line``."""

    def __init__(self, console: Console, log_line: Callable[[str], None] | None = None) -> None:
        self._show_download_line = log_line or partial(console.print, markup=False, highlight=False)
        self._download_progress = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.DownloadColumn(),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
            console=console,
            disable=log_line is not None or not console.is_terminal,
        )
        self.active = False

    def close(self) -> None:
        self._download_progress.stop()
        self.active = False

    def started(self, total: int | None, label: str) -> None:
        """Start the bar of a file of ``total`` bytes, where that is known."""
        self._download_progress.add_task(label, total=total)
        self._download_progress.start()
        self.active = not self._download_progress.disable
        if not self.active:
            size = f" ({total / 1e6:.0f} MB)" if total else ""
            self._show_download_line(f"{label}{size}")

    def advanced(self, count: int) -> None:
        self._download_progress.advance(self._download_progress.tasks[-1].id, count)

    def finished(self) -> None:
        if self.active:
            self.close()
        else:
            file = self._download_progress.tasks[-1]
            size = file.completed / 1e6
            rate = size / max(file.elapsed or 0.0, 1e-3)
            self._show_download_line(f"{file.description}: {size:.0f} MB at {rate:.1f} MB/s")
