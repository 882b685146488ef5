"""A bar for each contestant, as SVG: no library, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

_WIDTH, _ROW, _NAME, _TOP = 720, 28, 150, 40
_FIGURE = 56  # wide, at most
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#24292f}.bar{fill:#8c959f}.own{fill:#0969da}"
    ".bound{stroke:#cf222e;stroke-dasharray:4 3}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.bar{fill:#6e7681}.own{fill:#4493f8}}"
)


def bars_svg(title: str, figures: Mapping[str, float], own: str, bound: float) -> str:
    """Horizontal bars, the longest first; ``own`` stands out, a line marks ``bound``."""
    ordered = sorted(figures.items(), key=lambda pair: -pair[1])
    scale = (_WIDTH - _NAME - 90) / max([bound, *figures.values()])
    height = _TOP + _ROW * len(ordered) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<text x="0" y="18" font-weight="600">{escape(title)}</text>',
    ]
    mark = _NAME + bound * scale
    for number, (name, figure) in enumerate(ordered):
        top = _TOP + number * _ROW
        kind = "own" if name == own else "bar"
        length = figure * scale
        alongside = _NAME + length + 6
        if alongside <= mark <= alongside + _FIGURE:
            alongside = mark + 6
        parts += [
            f'<text x="{_NAME - 8}" y="{top + 15}" text-anchor="end">{escape(name)}</text>',
            f'<rect class="{kind}" x="{_NAME}" y="{top}" width="{length:.1f}" height="20" rx="2"/>',
            f'<text x="{alongside:.1f}" y="{top + 15}">{figure:,.0f}</text>',
        ]
    parts.append(
        f'<line class="bound" x1="{mark:.1f}" x2="{mark:.1f}" y1="{_TOP - 6}" y2="{height - 8}"/>'
    )
    return "\n".join([*parts, "</svg>", ""])
