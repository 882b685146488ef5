"""Branding of the pages: their name, colour and links, and logos of authors and providers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from urllib.parse import quote

from msgspec import Struct

_READABLE = 4.5  # contrast of text, by WCAG 2.2, 1.4.3
_STEP = 0.02
_WHITE, _BLACK = (255.0, 255.0, 255.0), (0.0, 0.0, 0.0)
# The surfaces of 10-tokens.css that accents are read on with the least contrast.
_DAY_SURFACE, _DAY_HOVER = (255.0, 255.0, 255.0), (237.0, 237.0, 234.0)
_NIGHT_SURFACE, _NIGHT_HOVER = (26.0, 26.0, 24.0), (45.0, 45.0, 42.0)

_Rgb = tuple[float, float, float]


class Branding(Struct, frozen=True):
    name: str = "Causerie"
    accent: str | None = None
    """Like ``#0f6b5c``; ``None`` is the colour of the style sheet."""
    terms: str | None = None
    """Web address."""
    contact: str | None = None
    """Web address or e-mail address."""

    @property
    def contact_link(self) -> str | None:
        if self.contact is None or self.contact.startswith(("http://", "https://")):
            return self.contact
        return f"mailto:{self.contact}"

    def style(self) -> bytes:
        """Return the CSS rules that set the accent colour; empty if there is none."""
        if self.accent is None:
            return b""
        red, green, blue = map(float, bytes.fromhex(self.accent.removeprefix("#")))
        wanted = red, green, blue
        day, night = _build_css_rules(wanted, _DAY), _build_css_rules(wanted, _NIGHT)
        return (
            f":root {{ {day} }}\n"
            f"@media (prefers-color-scheme: dark) {{ "
            f':root:not([data-theme="light"]) {{ {night} }} }}\n'
            f':root[data-theme="dark"] {{ {night} }}\n'
        ).encode()


class _Theme(Struct, frozen=True):
    surface: _Rgb
    hover: _Rgb
    towards: _Rgb
    """Colour towards which an unreadable one is mixed."""
    soft_share: float
    """Share of the accent in the soft ground behind it."""
    on_accent: Callable[[_Rgb], _Rgb]

    def soft(self, accent: _Rgb) -> _Rgb:
        return _mix_colours(self.surface, accent, self.soft_share)


_DAY = _Theme(_DAY_SURFACE, _DAY_HOVER, _BLACK, 0.11, lambda _: _WHITE)
_NIGHT = _Theme(
    _NIGHT_SURFACE, _NIGHT_HOVER, _WHITE, 0.18, lambda accent: _mix_colours(_BLACK, accent, 0.15)
)


def _build_css_rules(wanted_accent: _Rgb, theme: _Theme) -> str:
    accent = _choose_readable_accent(wanted_accent, theme)
    colours = {
        "accent": accent,
        "accent-hover": _mix_colours(accent, theme.towards, 0.2),
        "accent-soft": theme.soft(accent),
        "on-accent": theme.on_accent(accent),
    }
    texts = {name: bytes(map(round, colour)).hex() for name, colour in colours.items()}
    return " ".join(f"--{name}: #{text};" for name, text in texts.items())


def _choose_readable_accent(wanted_accent: _Rgb, theme: _Theme) -> _Rgb:
    steps = round(1 / _STEP)
    shades = (_mix_colours(wanted_accent, theme.towards, step * _STEP) for step in range(steps + 1))
    for shade in shades:
        pairs = ((shade, theme.hover), (shade, theme.soft(shade)), (theme.on_accent(shade), shade))
        if all(contrast(text, ground) >= _READABLE for text, ground in pairs):
            return shade
    return theme.towards


def contrast(one: _Rgb, other: _Rgb) -> float:
    lighter, darker = sorted((_compute_luminance(one), _compute_luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _compute_luminance(colour: _Rgb) -> float:
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (channel / 255 for channel in colour)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _mix_colours(colour: _Rgb, other: _Rgb, other_share: float) -> _Rgb:
    red, green, blue = (a + (b - a) * other_share for a, b in zip(colour, other, strict=True))
    return red, green, blue


_WORD = re.compile(r"[^\W_]+")


Logo = tuple[str, bytes]
"""Media type and content."""


def logo_addresses(prefix: str, logos: Mapping[str, Logo]) -> Mapping[str, str]:
    digests = {name: hashlib.sha256(content).hexdigest() for name, (_, content) in logos.items()}
    return {
        name: f"{prefix}/{quote(name, safe='')}?v={digest[:12]}" for name, digest in digests.items()
    }


def initials(name: str) -> str:
    words: list[str] = _WORD.findall(name)
    if len(words) == 1:
        return words[0][:2].upper()
    return "".join(word[0] for word in words[:2]).upper()


def hue(name: str) -> int:
    """Return the number, from 1 to 7, of the colour that marks a name without a logo."""
    return 1 + sum(name.casefold().encode()) % 7
