"""Two cookies: of a session, or a visitor who has none yet, and of the project that was open last.

That of the session names it. ``HttpOnly`` keeps scripts from it, ``SameSite=Lax``
other sites; over https it is ``Secure`` and has the prefix ``__Host-``, which no
other host of the same domain can set (RFC 6265bis, section 4.1.3). The other is
a preference that a script sets (static/frame.js): an id, which gives no right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

from causerie.edge.headers import Headers

_NAME = "causerie"
_PROJECT = "causerie-project"
_TOKEN = re.compile(r"[A-Za-z0-9]{43}", re.ASCII)


def token_in(headers: Headers, *, secure: bool) -> str:
    """The token that the browser sent; empty where it sent none that could be ours."""
    sent = _values(headers, _name(secure))
    return next((value for value in sent if _TOKEN.fullmatch(value)), "")


def project_in(headers: Headers) -> str:
    """Return the id of the project that was open last; empty if none was."""
    return next(_values(headers, _PROJECT), "")


def cookie(token: str, *, secure: bool, life: timedelta | None) -> str:
    """``Set-Cookie`` for a token; without ``life`` it ends with the browser."""
    age = f"; Max-Age={int(life.total_seconds())}" if life is not None else ""
    flags = "; Secure" if secure else ""
    return f"{_name(secure)}={token}; Path=/{age}; HttpOnly; SameSite=Lax{flags}"


def _values(headers: Headers, wanted: str) -> Iterator[str]:
    for header in headers.every("cookie"):
        for part in header.split(";"):
            name, _, value = part.strip().partition("=")
            if name == wanted:
                yield value


def _name(secure: bool) -> str:
    return f"__Host-{_NAME}" if secure else _NAME
