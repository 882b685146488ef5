"""Templates of the pages, and how values look in them. Everything is escaped unless made here."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from hashlib import blake2b

from jinja2 import Environment, PackageLoader, StrictUndefined, Template, meta
from markupsafe import Markup, escape

from causerie.catalog.page_cache import CachedPage
from causerie.http.answers import send_cached
from causerie.http.event_loop import offload
from causerie.http.exchange import Exchange
from causerie.http.pages.assets import PAGE_HEADERS, Statics
from causerie.http.pages.branding import Branding, hue, initials
from causerie.http.pages.snippets import BLANKS, CODE
from causerie.protocol.money import exact, rounded
from causerie.protocol.numbers import money

_LOOKS = {
    "moment": "{0.day} {0:%b %Y, %H:%M} UTC",
    "date": "{0.day} {0:%b %Y}",
    "day": "{0.day} {0:%b}",
    "hour": "{0:%H:%M}",
    "dayhour": "{0.day} {0:%b, %H:%M}",
    "stamp": "{0.day} {0:%b, %H:%M:%S}",
}
_FRAMES = ("layout.html", "open.html", "plain.html")
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


class Templates(Environment):
    """Templates that are compiled when they are first used, which takes up to 100 ms for a page."""

    compiled: frozenset[str] = frozenset()

    async def ready(self, name: str) -> Template:
        """Return a template, compiled in a thread with the templates that it refers to."""
        if name not in self.compiled:
            self.compiled |= await offload(self._compile_tree_names, name, frozenset())
        return self.get_template(name)

    def _compile_tree_names(self, name: str, compiled: frozenset[str]) -> frozenset[str]:
        assert self.loader is not None
        source, _, _ = self.loader.get_source(self, name)
        self.get_template(name)
        compiled |= {name}
        named = meta.find_referenced_templates(self.parse(source))  # None: one of the frames
        others = {each for one in named for each in ((one,) if one else _FRAMES)}
        for other in others - self.compiled:
            compiled = compiled if other in compiled else self._compile_tree_names(other, compiled)
        return compiled


def environment(statics: Statics, brand: Branding, logos: Mapping[str, str] = {}) -> Templates:
    """Return the template environment; ``logos`` are URLs by names of authors and providers."""
    made = Templates(
        loader=PackageLoader("causerie.http.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters = (coded, ago, exact, price, count, counted, short, seconds, written)
    made.filters |= {each.__name__: each for each in filters}
    made.filters |= {look: partial(_render_time, look) for look in _LOOKS}
    made.filters["money"] = rounded
    made.globals |= {"static": statics.address, "module": partial(_render_module_tags, statics)}
    made.globals |= {"seconds": seconds}
    made.globals |= {"brand": brand, "logo_address": logos.get, "initials": initials, "hue": hue}
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
        self._last_page_by_key: dict[Hashable, CachedPage] = {}

    async def send(
        self, exchange: Exchange, key: Hashable, values: Callable[[], dict[str, object]], vary: str
    ) -> None:
        """Send the page, rendered with ``values`` if the last one had another ``key``."""
        page = self._last_page_by_key.get(key)
        if page is None:
            body = self._template.render(values()).encode()
            etag = f'W/"{blake2b(body, digest_size=12).hexdigest()}"'
            page = CachedPage(body, etag, lasting=True)
            self._last_page_by_key = {key: page}
        headers = {**PAGE_HEADERS, "cache-control": "no-cache"} | ({"vary": vary} if vary else {})
        await send_cached(exchange, page, headers, content_type="text/html; charset=utf-8")


def _render_module_tags(statics: Statics, script_name: str) -> Markup:
    preload = Markup('<link rel="modulepreload" href="{}">')
    script = Markup('<script src="{}" type="module"></script>').format(statics.address(script_name))
    return Markup("").join([*map(preload.format, statics.imports(script_name)), script])


def coded(words: str) -> Markup:
    """Return HTML in which words between backticks are marked as code."""
    parts = words.split("`")
    if len(parts) % 2 == 0:  # one of them has no other
        return escape(words)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if index % 2 else part
        for index, part in enumerate(parts)
    )


def ago(at: datetime | None, empty: str = "never") -> Markup:
    """Return a time relative to now as HTML, like 2 hours ago; its title has the full time."""
    return _render_time("ago", at, empty, since(at, datetime.now(UTC)) if at is not None else "")


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
    """Format a whole number with commas between thousands."""
    return f"{int(number):,}"


def price(amount: Decimal | str) -> Markup:
    """Return an amount as HTML, rounded and aligned at its point, with the exact one as title."""
    try:
        value = money(amount) if isinstance(amount, str) else amount
    except ValueError:  # as a provider lists it
        return escape(amount)
    whole, point, rest = rounded(value).partition(".")
    return Markup('<span class="price" title="{}">{}<span>{}</span></span>').format(
        exact(value), whole, point + rest
    )


def counted(number: int, noun: str) -> str:
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


def short(number: float | Decimal) -> str:
    """Shorten a number to about four characters: 999, 1.2k, 34M."""
    value = float(number)
    for unit in ("", "k", "M", "B", "T"):
        if abs(value) < _THOUSAND - 0.5 or unit == "T":
            digits = 1 if unit and abs(value) < 9.95 else 0
            return f"{value:,.{digits}f}{unit}"
        value /= _THOUSAND
    return ""


def seconds(amount: float) -> str:
    """Format a duration with about three digits: 12 ms, 1.5 s, 4 min 10 s."""
    if 0 < amount < 0.0095:
        return f"{amount * 1000:.2g} ms"
    if amount < 0.9995:
        return f"{amount * 1000:.0f} ms"
    if amount < 59.95:
        return f"{amount:.1f} s"
    minutes, rest = divmod(round(amount), 60)
    return f"{minutes} min {rest} s"


def written(at: date, look: str = "date") -> str:
    """Format a time in UTC by the pattern named ``look``; the default is like 29 Nov 2026."""
    return _LOOKS[look].format(at.astimezone(UTC) if isinstance(at, datetime) else at)


def _render_time(look: str, at: datetime | None, empty: str = "never", words: str = "") -> Markup:
    # A script shows it in the visitor's own zone.
    if at is None:
        return Markup('<span class="quiet">{}</span>').format(empty)
    utc = at.astimezone(UTC)
    return Markup('<time datetime="{}" data-look="{}" title="{}">{}</time>').format(
        utc.isoformat(timespec="seconds").replace("+00:00", "Z"),
        look,
        written(utc, "moment"),
        words or written(utc, look),
    )
