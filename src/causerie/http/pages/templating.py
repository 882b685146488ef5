"""Templates of the pages, how values look in them, and the files that they load. Everything in a
page is escaped unless made here.

Styles, scripts, pictures and the typeface are read once, named by content and kept by browsers for
a year; headers of pages and files let a browser do little with them. A page loads the style sheets
and scripts that it needs: see `SHEETS` and the templates. Scripts are ES modules, and a page
preloads all that its script imports.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, partial
from hashlib import blake2b
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from causerie.catalog.page_cache import CachedPage
from causerie.errors import NotFound
from causerie.http.answers import send_cached
from causerie.http.exchange import Exchange
from causerie.http.pages.branding import Branding, initials
from causerie.http.pages.snippets import BLANKS, CODE
from causerie.protocol.money import exact, rounded

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
    "console.css": ("10-tokens", "20-base", "30-frame", "40-parts", "41-picker", "62-charts"),
    "chat.css": ("60-playground", "66-chat"),
    "catalog.css": ("61-models", "64-catalog"),
    "workspace.css": ("63-activity", "65-providers", "67-overview", "68-palette", "69-entries"),
    "docs.css": ("70-docs",),
}
"""Style sheets and their parts: of every page, and of pages by subject."""
_IMPORT = re.compile(r'(\b(?:from|import)[ (]")\./(\w+\.js)(")')
_STATIC_IMPORT = re.compile(r'^(?:import|\}) (?:.* from )?"\./(\w+\.js)";$', re.MULTILINE)
_TYPEFACE = re.compile(r"url\(\./([a-z]+\.woff2)\)")


class Statics:
    def __init__(self, prefix: str, last_style: bytes = b"") -> None:
        """``last_style`` follows the styles of every page."""
        self._addresses: dict[str, str] = {}
        self._files: dict[str, CachedPage] = {}
        others, texts = _contents()
        for name, content in others.items():
            self._add(prefix, name, content)
        for name, parts in SHEETS.items():
            style = "".join(texts[f"{part}.css"] for part in parts)
            located = _TYPEFACE.sub(lambda found: f"url({self._addresses[found[1]]})", style)
            self._add(prefix, name, located.encode() + last_style)
            last_style = b""
        self._scripts = {name: text for name, text in texts.items() if name.endswith(".js")}
        for name in self._scripts:
            self._add_script(prefix, name)

    def address(self, name: str) -> str:
        return self._addresses[name]

    def imports(self, name: str) -> Sequence[str]:
        found: dict[str, None] = {}
        waiting = [name]
        while waiting:
            text = self._scripts[waiting.pop()]
            new = [each for each in _STATIC_IMPORT.findall(text) if each not in found]
            found |= dict.fromkeys(new)
            waiting += new
        return [self._addresses[each] for each in found]

    async def answer(self, exchange: Exchange) -> None:
        file = self._files.get(exchange.path)
        if file is None:
            raise NotFound("There is no such file.")
        kind = _TYPES[exchange.path.rpartition(".")[2]]
        headers = {**FILE_HEADERS, "cache-control": "public, max-age=31536000, immutable"}
        await send_cached(exchange, file, headers, content_type=kind)

    def _add_script(self, prefix: str, name: str) -> None:
        # Imports come first, as an address names content: no script meets one of another version.
        if name in self._addresses:
            return

        def addressed(found: re.Match[str]) -> str:
            self._add_script(prefix, found[2])
            return found[1] + self._addresses[found[2]] + found[3]

        self._add(prefix, name, _IMPORT.sub(addressed, self._scripts[name]).encode())

    def _add(self, prefix: str, name: str, content: bytes) -> None:
        stem, _, kind = name.rpartition(".")
        hashed = hashlib.sha256(content).hexdigest()[:16]
        address = f"{prefix}/{stem}.{hashed}.{kind}"
        self._addresses[name] = address
        small = gzip.compress(content, mtime=0)
        self._files[address] = CachedPage(content, f'W/"{hashed}"', small)


@cache
def _contents() -> tuple[Mapping[str, bytes], Mapping[str, str]]:
    folder = files(__package__) / "static"
    kept = [each for each in folder.iterdir() if each.name.rpartition(".")[2] in _TYPES]
    others = {each.name: each.read_bytes() for each in kept}
    names = [name for name in others if name.endswith((".css", ".js"))]
    texts = {name: others.pop(name).decode() for name in names}
    return others, texts


_LOOKS = {
    "moment": "%Y-%m-%d %H:%M UTC",
    "date": "%Y-%m-%d",
    "hour": "%H:%M",
    "dayhour": "%d %b %H:%M",
    "stamp": "%m-%d %H:%M:%S",
}
_THOUSAND = 1000
_UNITS = (
    ("year", 31_536_000),
    ("month", 2_592_000),
    ("day", 86_400),
    ("hour", 3_600),
    ("minute", 60),
)
_NAMED = {
    ("day", -1): "yesterday",
    ("day", 1): "tomorrow",
    ("month", -1): "last month",
    ("month", 1): "next month",
    ("year", -1): "last year",
    ("year", 1): "next year",
}


def environment(statics: Statics, brand: Branding, logos: Mapping[str, str] = {}) -> Environment:
    """``logos`` are addresses by the names of authors and providers."""
    made = Environment(
        loader=PackageLoader("causerie.http.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters = (coded, ago, exact, decimal, count, counted, short, seconds, day)
    made.filters |= {each.__name__: each for each in filters}
    made.filters |= {look: partial(_time, look) for look in _LOOKS}
    made.filters["money"] = rounded
    made.globals |= {"static": statics.address, "module": partial(_module, statics)}
    made.globals |= {"seconds": seconds}
    made.globals |= {"brand": brand, "logo_address": logos.get, "initials": initials}
    made.globals |= {"code_table": CODE, "code_blanks": BLANKS}
    return made


class StandalonePage:
    """A page outside the console, with the scripts, styles and pictures that it loads."""

    def __init__(
        self,
        template: str,
        static_prefix: str,
        brand: Branding,
        filters: Mapping[str, Callable[..., object]] = {},
    ) -> None:
        self.statics = Statics(static_prefix, brand.style())
        templates = environment(self.statics, brand)
        templates.filters |= filters
        self._template = templates.get_template(template)
        self._rendered: dict[Hashable, CachedPage] = {}

    async def send(
        self, exchange: Exchange, key: Hashable, values: Callable[[], dict[str, object]], vary: str
    ) -> None:
        """Send the page, rendered with ``values`` if the last one had another ``key``."""
        page = self._rendered.get(key)
        if page is None:
            body = self._template.render(values()).encode()
            page = CachedPage(body, f'W/"{blake2b(body, digest_size=12).hexdigest()}"')
            self._rendered = {key: page}
        headers = {**PAGE_HEADERS, "cache-control": "no-cache"} | ({"vary": vary} if vary else {})
        await send_cached(exchange, page, headers, content_type="text/html; charset=utf-8")


def _module(statics: Statics, name: str) -> Markup:
    preload = Markup('<link rel="modulepreload" href="{}">')
    script = Markup('<script src="{}" type="module"></script>').format(statics.address(name))
    return Markup("").join([*map(preload.format, statics.imports(name)), script])


def coded(words: str) -> Markup:
    """Words, of which those between backticks are code."""
    parts = words.split("`")
    if len(parts) % 2 == 0:  # one of them has no other
        return escape(words)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if index % 2 else part
        for index, part in enumerate(parts)
    )


def ago(at: datetime | None, empty: str = "never") -> Markup:
    """Return the time since or until then; the full time is in its title."""
    return _time("ago", at, empty, since(at, datetime.now(UTC)) if at is not None else "")


def since(at: datetime, now: datetime) -> str:
    seconds = (at - now).total_seconds()
    for unit, length in _UNITS:
        if abs(seconds) < length:
            continue
        many = seconds / length
        whole = int(many + 0.5) if many > 0 else int(many)
        if (unit, whole) in _NAMED:
            return _NAMED[unit, whole]
        words = counted(abs(whole), unit)
        return f"in {words}" if whole > 0 else f"{words} ago"
    return "this minute"


def count(number: int | Decimal) -> str:
    """A whole number, its thousands apart."""
    return f"{int(number):,}"


def decimal(amount: Decimal) -> str:
    """Return an amount of money to a hundredth of a cent, so that a column of them is aligned."""
    least = Decimal("0.0001")
    return f"< ${least}" if 0 < amount < least / 2 else f"${amount:,.4f}"


def counted(number: int, noun: str) -> str:
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


def short(number: float | Decimal) -> str:
    """A number in at most four characters or so: 999, 1.2k, 34M."""
    value = float(number)
    for unit in ("", "k", "M", "B", "T"):
        if abs(value) < _THOUSAND - 0.5 or unit == "T":
            digits = 1 if unit and abs(value) < 9.95 else 0
            return f"{value:,.{digits}f}{unit}"
        value /= _THOUSAND
    return ""


def seconds(amount: float) -> str:
    """A length of time, three digits of it: 12 ms, 1.5 s, 4 min 10 s."""
    if 0 < amount < 0.0095:
        return f"{amount * 1000:.2g} ms"
    if amount < 0.9995:
        return f"{amount * 1000:.0f} ms"
    if amount < 59.95:
        return f"{amount:.1f} s"
    minutes, rest = divmod(round(amount), 60)
    return f"{minutes} min {rest} s"


def day(at: datetime) -> str:
    utc = at.astimezone(UTC)
    return f"{utc.day} {utc:%b}"


def _time(look: str, at: datetime | None, empty: str = "never", words: str = "") -> Markup:
    # A script shows it in the visitor's own zone.
    if at is None:
        return Markup('<span class="quiet">{}</span>').format(empty)
    utc = at.astimezone(UTC)
    return Markup('<time datetime="{}" data-look="{}" title="{}">{}</time>').format(
        utc.isoformat(timespec="seconds").replace("+00:00", "Z"),
        look,
        utc.strftime(_LOOKS["moment"]),
        words or utc.strftime(_LOOKS[look]),
    )
