"""What ``serve`` prints for other devices: addresses, and a QR code of the chat page."""

from __future__ import annotations

import io
import ipaddress
import socket

import segno
from rich.console import Console

from causerie.cli.announcement import ConsoleAnnouncer, network_urls, qr_lines
from causerie.settings.tree import DoorSettings, ServerSettings, Settings

OPEN = ServerSettings(host="0.0.0.0", keys="off")


def test_other_devices_get_addresses_that_they_can_open() -> None:
    assert list(network_urls("192.168.1.5", 80)) == ["http://192.168.1.5:80"]
    *numeric, named = network_urls("0.0.0.0", 8000)
    for url in numeric:
        host = url.removeprefix("http://").removesuffix(":8000")
        assert not ipaddress.ip_address(host).is_loopback
        with socket.socket() as own:
            own.bind((host, 0))  # it is one of this machine
    assert named == f"http://{socket.gethostname().partition('.')[0].lower()}.local:8000"


def test_the_code_is_drawn_as_it_is_made() -> None:
    url = "http://192.168.1.5:8000/"
    modules = [list(row) for row in segno.make(url, micro=False).matrix_iter(border=2)]
    rows = []
    for line in qr_lines(url):
        rows.append([int(cell not in "█▀") for cell in line])
        rows.append([int(cell not in "█▄") for cell in line])
    assert rows[: len(modules)] == modules


def started(server: ServerSettings, *, terminal: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80)
    settings = Settings(server=server, doors=(DoorSettings(name="endpoint", keys=server.keys),))
    ConsoleAnnouncer(settings, console).ready(server.host, 8000)
    return out.getvalue()


def test_a_terminal_shows_a_code_where_a_phone_gets_the_page() -> None:
    assert "Scan this to chat on a phone: http://" in started(OPEN, terminal=True)
    assert "Scan" not in started(OPEN, terminal=False)
    assert "Scan" not in started(ServerSettings(), terminal=True), "only this machine"
    locked = ServerSettings(host="0.0.0.0", keys=(f"sha256:{'0' * 64}",))
    words = started(locked, terminal=True)
    assert "Scan" not in words
    assert "`--set server.chat_page=true` serves it" in words
