"""The one cookie: what names a session, or a visitor who has none yet.

``HttpOnly`` keeps scripts from it, ``SameSite=Lax`` other sites; over https it
is ``Secure`` and has the prefix ``__Host-``, which no other host of the same
domain can set (RFC 6265bis, section 4.1.3).
"""

from __future__ import annotations

import re
from datetime import timedelta

from causerie.edge.headers import Headers

_NAME = "causerie"
_TOKEN = re.compile(r"[A-Za-z0-9]{43}", re.ASCII)


def token_in(headers: Headers, *, secure: bool) -> str:
    """The token that the browser sent; empty where it sent none that could be ours."""
    wanted = _name(secure)
    for header in headers.every("cookie"):
        for part in header.split(";"):
            name, _, value = part.strip().partition("=")
            if name == wanted and _TOKEN.fullmatch(value):
                return value
    return ""


def cookie(token: str, *, secure: bool, life: timedelta | None) -> str:
    """``Set-Cookie`` for a token; without ``life`` it ends with the browser."""
    age = f"; Max-Age={int(life.total_seconds())}" if life is not None else ""
    flags = "; Secure" if secure else ""
    return f"{_name(secure)}={token}; Path=/{age}; HttpOnly; SameSite=Lax{flags}"


def _name(secure: bool) -> str:
    return f"__Host-{_NAME}" if secure else _NAME
