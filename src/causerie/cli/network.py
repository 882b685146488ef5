"""Addresses at which other devices of the network reach a service, and their QR code."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress

import segno

from causerie.cli.command import local_url

# Nothing is sent there: the system only says from which of its addresses it would be (RFC 5737,
# RFC 3849).
_ELSEWHERE = {
    "0.0.0.0": (socket.AF_INET, "192.0.2.1"),
    "::": (socket.AF_INET6, "2001:db8::1"),
}
_MARGIN = 2  # modules around a code; fewer than ISO/IEC 18004 asks for, which readers tolerate
_HALVES = {(0, 0): "█", (0, 1): "▀", (1, 0): "▄", (1, 1): " "}  # light modules are drawn


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


def qr_lines(text: str) -> Iterator[str]:
    """Yield the rows of a QR code for a dark terminal, two modules high each."""
    rows = [list(row) for row in segno.make(text, micro=False).matrix_iter(border=_MARGIN)]
    if len(rows) % 2:
        rows.append([1] * len(rows[0]))  # as dark as what is below
    for upper, lower in zip(rows[::2], rows[1::2], strict=True):
        yield "".join(_HALVES[bool(a), bool(b)] for a, b in zip(upper, lower, strict=True))
