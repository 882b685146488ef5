"""Lines as SVG: no library, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM, _RIGHT = 760, 230, 64, 34, 30, 190
_COLOURS = ("#0969da", "#1a7f37", "#bf8700", "#8250df", "#cf222e", "#6e7781", "#bf3989")
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#24292f}.axis{stroke:#8c959f;fill:none}"
    "polyline{fill:none;stroke-width:1.8}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}}"
)
_MOST_POINTS = 120
Line = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Panel:
    """Some lines with one pair of axes; ``unit`` is that of x."""

    title: str
    lines: Mapping[str, Line]
    unit: str = "s"


def curves_svg(title: str, panels: Sequence[Panel]) -> str:
    """The panels below each other; a name has the same colour in all."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    colours = {name: _COLOURS[place % len(_COLOURS)] for place, name in enumerate(names)}
    height = _HEIGHT * len(panels) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
    ]
    for place, panel in enumerate(panels):
        parts += _panel(panel, place * _HEIGHT, colours)
    return "\n".join([*parts, "</svg>", ""])


def _thinned(line: Line) -> Line:
    """Few enough points for a picture; the last one is always there."""
    step = max(len(line) // _MOST_POINTS, 1)
    return [*line[:-1][::step], *line[-1:]]


def _panel(panel: Panel, top: float, colours: Mapping[str, str]) -> list[str]:
    points = [point for line in panel.lines.values() for point in line]
    most_x = max((x for x, _ in points), default=1) or 1
    most_y = max((y for _, y in points), default=1) or 1
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    floor = top + _TOP + high
    end = f"{most_x:.0f} {panel.unit}"
    parts = [
        f'<text x="0" y="{top + 18}" font-weight="600">{escape(panel.title)}</text>',
        f'<path class="axis" d="M{_LEFT} {top + _TOP}V{floor}H{_LEFT + wide}"/>',
        f'<text x="{_LEFT - 6}" y="{top + _TOP + 8}" text-anchor="end">{most_y:.4g}</text>',
        f'<text x="{_LEFT - 6}" y="{floor}" text-anchor="end">0</text>',
        f'<text x="{_LEFT + wide}" y="{floor + 16}" text-anchor="end">{end}</text>',
    ]
    for row, (name, line) in enumerate(panel.lines.items()):
        drawn = " ".join(
            f"{_LEFT + x / most_x * wide:.0f},{floor - y / most_y * high:.1f}"
            for x, y in _thinned(line)
        )
        key = _LEFT + wide + 14, top + _TOP + 8 + 16 * row
        parts += [
            f'<polyline stroke="{colours[name]}" points="{drawn}"/>',
            f'<rect x="{key[0]}" y="{key[1] - 9}" width="10" height="10" fill="{colours[name]}"/>',
            f'<text x="{key[0] + 16}" y="{key[1]}">{escape(name)}</text>',
        ]
    return parts
