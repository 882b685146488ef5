"""Styles, scripts, pictures, typeface: read once, named by content, kept by browsers for a year."""

from __future__ import annotations

import gzip
import hashlib
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType

from causerie.catalog.page_cache import CachedPage
from causerie.console.security import HEADERS
from causerie.edge.cached import send_cached
from causerie.edge.exchange import Exchange
from causerie.errors import NotFound

_TYPES = MappingProxyType(
    {
        "css": "text/css; charset=utf-8",
        "js": "text/javascript; charset=utf-8",
        "svg": "image/svg+xml",
        "woff2": "font/woff2",
    }
)
_HASH_LENGTH = 16
_IMPORT = re.compile(rb"""(^import [^;"]*")\./([a-z_]+\.js)(";)""", re.MULTILINE)
_TYPEFACE = re.compile(rb"url\(\./([a-z]+\.woff2)\)")
_FOR_EVER = "public, max-age=31536000, immutable"


class Statics:
    """All static files below one address. The styles are one file, in the order of their names."""

    def __init__(self, prefix: str, last_style: bytes = b"") -> None:
        """``last_style`` follows the styles of the folder."""
        self._addresses: dict[str, str] = {}
        self._files: dict[str, CachedPage] = {}
        folder = files(__package__) / "static"
        kept = {each.name: each.read_bytes() for each in folder.iterdir() if _kind(each)}
        styles = sorted(name for name in kept if name.endswith(".css"))
        style = b"\n".join(kept.pop(name) for name in styles) + b"\n" + last_style
        scripts = {name: kept.pop(name) for name in list(kept) if name.endswith(".js")}
        for name, content in kept.items():
            self._add(prefix, name, content)
        self._add(prefix, "console.css", _TYPEFACE.sub(self._located, style))
        for name in scripts:
            self._add_script(prefix, name, scripts)

    def address(self, name: str) -> str:
        """The path of a file; raises :class:`KeyError` for one that is not there."""
        return self._addresses[name]

    async def answer(self, exchange: Exchange) -> None:
        """Send a file; raises :class:`NotFound`."""
        file = self._files.get(exchange.path)
        if file is None:
            raise NotFound("There is no such file.")
        kind = _TYPES[exchange.path.rpartition(".")[2]]
        headers = {**HEADERS, "cache-control": _FOR_EVER}
        await send_cached(exchange, file, headers, content_type=kind)

    def _located(self, found: re.Match[bytes]) -> bytes:
        """Return the path of a typeface for a style; raise :class:`KeyError` if there is none."""
        return b"url(" + self._addresses[found[1].decode()].encode() + b")"

    def _add_script(self, prefix: str, name: str, scripts: dict[str, bytes]) -> None:
        """A script after those that it imports, which it then names as they are named here.

        So that no script meets one of another version. Raises :class:`KeyError`
        where it imports what is not there.
        """
        if name in self._addresses:
            return

        def named(found: re.Match[bytes]) -> bytes:
            imported = found[2].decode()
            self._add_script(prefix, imported, scripts)
            return found[1] + self._addresses[imported].encode() + found[3]

        self._add(prefix, name, _IMPORT.sub(named, scripts[name]))

    def _add(self, prefix: str, name: str, content: bytes) -> None:
        stem, _, kind = name.rpartition(".")
        hashed = hashlib.sha256(content).hexdigest()[:_HASH_LENGTH]
        address = f"{prefix}/{stem}.{hashed}.{kind}"
        self._addresses[name] = address
        small = gzip.compress(content, mtime=0)
        self._files[address] = CachedPage(content, f'W/"{hashed}"', small)


def _kind(file: Traversable) -> bool:
    return file.name.rpartition(".")[2] in _TYPES
