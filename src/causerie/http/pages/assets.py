"""Static files of the pages, whose addresses have a hash of the content, and security headers.

A page loads the style sheets and scripts that it needs: see `SHEETS` and the templates. Scripts
are ES modules, and a page preloads all that its script imports.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

from causerie.catalog.page_cache import CachedPage
from causerie.errors import NotFound
from causerie.http.answers import send_cached
from causerie.http.exchange import Exchange

_CONTENT_POLICY = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "font-src 'self'",
    "connect-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
)
PAGE_HEADERS: Mapping[str, str] = {
    "content-security-policy": "; ".join(_CONTENT_POLICY),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Of pages."""
FILE_HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'none'",
    "cross-origin-resource-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
"""Of styles, scripts and pictures. A page that loads them has said the rest; opened by themselves
they are text, or a picture that runs nothing."""


def asked_by_person(headers: Mapping[str, str]) -> bool:
    """Return true if this site or the user opened the page, by the headers of the browser.

    No other site chose such a request, so its answer may be compressed.
    """
    opens = headers.get("sec-fetch-mode") == "navigate"
    return opens and headers.get("sec-fetch-site") in ("same-origin", "none")


_TYPES: Mapping[str, str] = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
}
SHEETS: Mapping[str, Sequence[str]] = {
    "console.css": (
        "10-tokens",
        "20-base",
        "30-frame",
        "40-parts",
        "41-picker",
        "42-tables",
        "68-palette",
    ),
    "chat.css": ("60-playground", "66-chat"),
    "charts.css": ("62-charts",),
    "catalog.css": ("61-models", "64-catalog"),
    "workspace.css": ("63-activity", "65-providers", "67-overview", "69-entries"),
    "docs.css": ("70-docs",),
}
"""Style sheets and their parts: of every page, and of pages by subject."""
_ENDS = tuple(f".{kind}" for kind in _TYPES)
_IMPORT = re.compile(r'(\b(?:from |import[ (]|URL\()")\./(\w+\.js)(")')
_STATIC_IMPORT = re.compile(r'^(?:import|\}) (?:.* from )?"\./(\w+\.js)";$', re.MULTILINE)
_TYPEFACE = re.compile(r"url\(\./([a-z]+\.woff2)\)")


class Statics:
    def __init__(self, prefix: str, last_style: bytes = b"") -> None:
        """Read and address all files; ``last_style`` is added to the style sheet of every page."""
        self._address_by_name: dict[str, str] = {}
        self._files_by_address: dict[str, CachedPage] = {}
        others, texts = _read_static_bytes_and_own_texts()
        for name, content in others.items():
            self._add_file(prefix, name, content)
        for name, parts in SHEETS.items():
            style = "".join(texts[f"{part}.css"] for part in parts)
            located = _TYPEFACE.sub(lambda found: f"url({self._address_by_name[found[1]]})", style)
            self._add_file(prefix, name, located.encode() + last_style)
            last_style = b""
        self._js_texts = {name: text for name, text in texts.items() if name.endswith(".js")}
        for name in self._js_texts:
            self._add_script(prefix, name)

    def address(self, name: str) -> str:
        return self._address_by_name[name]

    def imports(self, name: str) -> Sequence[str]:
        found: dict[str, None] = {}
        waiting = [name]
        while waiting:
            text = self._js_texts[waiting.pop()]
            new = [each for each in _STATIC_IMPORT.findall(text) if each not in found]
            found |= dict.fromkeys(new)
            waiting += new
        return [self._address_by_name[each] for each in found]

    async def answer(self, exchange: Exchange) -> None:
        file = self._files_by_address.get(exchange.path)
        if file is None:
            raise NotFound("There is no such file.")
        kind = _TYPES[exchange.path.rpartition(".")[2]]
        headers = {**FILE_HEADERS, "cache-control": "public, max-age=31536000, immutable"}
        await send_cached(exchange, file, headers, content_type=kind)

    def _add_script(self, prefix: str, file_name: str) -> None:
        # Imports come first, as an address names content: no script meets one of another version.
        if file_name in self._address_by_name:
            return

        def addressed(found: re.Match[str]) -> str:
            self._add_script(prefix, found[2])
            return found[1] + self._address_by_name[found[2]] + found[3]

        self._add_file(
            prefix, file_name, _IMPORT.sub(addressed, self._js_texts[file_name]).encode()
        )

    def _add_file(self, prefix: str, file_name: str, content: bytes) -> None:
        stem, _, kind = file_name.rpartition(".")
        hashed = hashlib.sha256(content).hexdigest()[:16]
        address = f"{prefix}/{stem}.{hashed}.{kind}"
        self._address_by_name[file_name] = address
        self._files_by_address[address] = CachedPage(content, f'W/"{hashed}"', lasting=True)


@cache
def _read_static_bytes_and_own_texts() -> tuple[Mapping[str, bytes], Mapping[str, str]]:
    folder = files(__package__) / "static"
    found = [*folder.iterdir(), *(folder / "vendor").iterdir()]
    others = {each.name: each.read_bytes() for each in found if each.name.endswith(_ENDS)}
    own = [each.name for each in folder.iterdir() if each.name.endswith((".css", ".js"))]
    texts = {name: others.pop(name).decode() for name in own}
    return others, texts
