"""The scripts that the server runs, so that many numbers change in one step."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class LuaScript:
    """A script, and the name under which the server knows it once it was loaded."""

    text: bytes
    name: bytes


def _script(*parts: str) -> LuaScript:
    folder = files(__package__)
    text = b"\n".join(folder.joinpath(f"{part}.lua").read_bytes() for part in parts)
    return LuaScript(text, sha1(text, usedforsecurity=False).hexdigest().encode())


TAKE = _script("window", "take")
RELEASE = _script("window", "release")
JOIN = _script("join")
BEAT = _script("beat")
HOLD = _script("amounts", "hold")
SETTLE = _script("amounts", "settle")
PUBLISH = _script("publish")
ALL = (TAKE, RELEASE, JOIN, BEAT, HOLD, SETTLE, PUBLISH)
