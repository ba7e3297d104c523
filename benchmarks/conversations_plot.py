"""Draws one figure of several servers under several loads as SVG bars. Knows nothing of how it was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _LEFT, _BAR, _GAP = 760, 170, 15, 16
# Room right of the longest bar, for its figure.
_RIGHT = 60
_COLOURS = {"Palimpsest, SQLite": "#1b7f5c", "Palimpsest, PostgreSQL": "#57a98c"}
_OTHER = "#b9b2a5"


def bars_of(title: str, found: Mapping[tuple[str, str], float], digits: int) -> str:
    """A group of bars for each load, one bar for each server; keys are (load, server)."""
    loads = list(dict.fromkeys(load for load, _ in found))
    scale = (_WIDTH - _LEFT - _RIGHT) / max(found.values())
    parts, y = [_text(8, 20, title, weight="bold")], 36
    for load in loads:
        parts.append(_text(8, y + 8, load, weight="bold"))
        y += _BAR
        for server, value in [(name, found[load, name]) for at, name in found if at == load]:
            colour = _COLOURS.get(server, _OTHER)
            width = round(value * scale, 1)
            parts.append(f'<rect x="{_LEFT}" y="{y}" width="{width}" height="{_BAR - 3}" fill="{colour}"/>')
            parts.append(_text(_LEFT - 6, y + 10, server, anchor="end"))
            parts.append(_text(round(_LEFT + width + 5, 1), y + 10, f"{value:,.{digits}f}"))
            y += _BAR
        y += _GAP
    return _document(parts, y)


def _document(parts: Sequence[str], height: int) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" font-family="system-ui, sans-serif" font-size="11">'
    )
    ground = f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, ground, *parts, "</svg>"]) + "\n"


def _text(x: float, y: float, words: str, *, anchor: str = "start", weight: str = "normal") -> str:
    style = f'text-anchor="{anchor}" font-weight="{weight}" fill="#1d1c1a"'
    return f'<text x="{x}" y="{y}" {style}>{escape(words)}</text>'
