"""Package indexes of the user's pip.

Asks pip itself, in a child process, so that pip applies its own rules to its
files and variables. Without pip, or without a setting, the result is the public
index.
"""

from __future__ import annotations

import ast
import asyncio
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from causerie.runtime.child_environment import package_index_environment

PUBLIC_INDEX = "https://{}.{}/simple".format("pypi", "org")

_LINE = re.compile(r"^(global|download|:env:)\.([a-z-]+)=(.+)$")
_ORDER = ("global", "download", ":env:")  # the later wins


@dataclass(frozen=True, slots=True)
class PipConfiguration:
    """Addresses of package indexes in the order to ask them, and whom to trust."""

    index_urls: tuple[str, ...]
    certificates: Path | None = None


async def pip_configuration() -> PipConfiguration:
    """Return the configuration of pip on this machine."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # nothing in the working directory is taken for a module
        *("-m", "pip", "config", "list"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=package_index_environment(),
    )
    try:
        output, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return parsed(output.decode("utf-8", "replace") if child.returncode == 0 else "")


def parsed(listing: str) -> PipConfiguration:
    """Return the configuration that ``pip config list`` printed."""
    settings = _settings(listing)
    addresses = [
        settings.get("index-url", PUBLIC_INDEX),
        *settings.get("extra-index-url", "").split(),
    ]
    certificates = settings.get("cert")
    return PipConfiguration(
        index_urls=tuple(dict.fromkeys(address.rstrip("/") for address in addresses)),
        certificates=Path(certificates).expanduser() if certificates else None,
    )


def _settings(listing: str) -> Mapping[str, str]:
    found: dict[str, dict[str, str]] = {section: {} for section in _ORDER}
    for line in listing.splitlines():
        if match := _LINE.match(line.strip()):
            found[match.group(1)][match.group(2)] = _unquoted(match.group(3))
    return {key: value for section in _ORDER for key, value in found[section].items()}


def _unquoted(value: str) -> str:
    try:
        return str(ast.literal_eval(value))
    except (ValueError, SyntaxError):
        return value
