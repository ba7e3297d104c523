"""Draws bills over triggers as SVG, by hand. Knows nothing of how they were found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]
Placing = Callable[[Point], Point]

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 32, 40, 52
# The scale of bills.
LEAST, MOST = 0.9, 1.7
COLOURS = ("#1b7f5c", "#b5532a")
MARKERS = {"lowest": "lowest", "cost": "cost", "fidelity": "fidelity"}
# Two rows of labels, because two dots may be near each other; where they stand on the scale of bills.
_LABEL_BILLS = {"lowest": 0.965, "cost": 0.92, "fidelity": 0.965}
_BESIDE_SHARE = 0.8


@dataclass(frozen=True)
class Curve:
    """Bills (over the optimum) by trigger (tokens), and named points beside them."""

    name: str
    line: list[Point]
    points: dict[str, Point]


def svg_of(curves: Sequence[Curve]) -> str:
    """One picture of all curves; what lies above the scale is left out."""
    most = max(x for curve in curves for x, _ in [*curve.line, *curve.points.values()])
    least = min(x for curve in curves for x, _ in curve.line)
    low, high = int(least // 1_000) * 1_000, int(-(-most // 1_000)) * 1_000

    def at(point: Point) -> Point:
        x = LEFT + (point[0] - low) / (high - low) * (WIDTH - LEFT - RIGHT)
        return round(x, 1), round(
            HEIGHT - BOTTOM - (point[1] - LEAST) / (MOST - LEAST) * (HEIGHT - TOP - BOTTOM), 1
        )

    parts = [*_axes(at, low, high)]
    for index, curve in enumerate(curves):
        colour = COLOURS[index % len(COLOURS)]
        shown = " ".join("{},{}".format(*at(point)) for point in curve.line if point[1] <= MOST)
        parts.append(f'<polyline points="{shown}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text((LEFT + 12 + 190 * index, 22), curve.name, fill=colour, weight="bold"))
        parts.extend(_named(at, curve.points, colour))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="system-ui, sans-serif" font-size="12">'
    )
    background = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    return "\n".join([head, background, *parts, "</svg>"]) + "\n"


def _axes(at: Placing, low: int, high: int) -> Iterator[str]:
    for tenth in range(round(10 * LEAST), round(10 * MOST) + 1):
        left, right = at((low, tenth / 10)), at((high, tenth / 10))
        yield _line(left, right, "#999999" if tenth in (10, round(10 * LEAST)) else "#e8e8e8")
        yield _text((LEFT - 8, left[1] + 4), f"{tenth / 10:.1f}", anchor="end")
    limit = at((low, 1.15)), at((high, 1.15))
    yield _line(*limit, "#777777", dashes="5 4")
    yield _text((limit[1][0], limit[1][1] - 5), "1.15, the aim", anchor="end")
    for trigger in range(low, high + 1, 1_000):
        x, y = at((trigger, LEAST))
        yield _line((x, y), (x, y + 5), "#999999")
        yield _text((x, y + 19), f"{trigger:,}", anchor="middle")
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield _text((middle, HEIGHT - 12), "trigger, tokens of the prompt", anchor="middle")
    turn = f'transform="rotate(-90 16 {HEIGHT / 2})"'
    yield _text((16, HEIGHT / 2), "bill, times the optimum", anchor="middle", more=turn)


def _named(at: Placing, points: dict[str, Point], colour: str) -> Iterator[str]:
    """A dot for each; labels stand below the optimum's line, those near the right edge beside their dot."""
    for name, point in points.items():
        x, y = at((point[0], min(point[1], MOST)))
        label = f"{MARKERS[name]} ({point[1]:.2f})"
        if x > WIDTH * _BESIDE_SHARE:
            yield _text((x - 9, y + 4), label, anchor="end", fill=colour)
        else:
            low = at((point[0], _LABEL_BILLS[name]))[1]
            yield _line((x, y), (x, low - 11), colour, dashes="1 3")
            yield _text((x, low), label, anchor="middle", fill=colour)
        yield f'<circle cx="{x}" cy="{y}" r="5" fill="{colour}" stroke="#ffffff" stroke-width="1.5"/>'


def _line(start: Point, end: Point, colour: str, dashes: str = "none") -> str:
    return (
        f'<line x1="{start[0]}" y1="{start[1]}" x2="{end[0]}" y2="{end[1]}" stroke="{colour}" '
        f'stroke-dasharray="{dashes}"/>'
    )


def _text(
    place: Point,
    text: str,
    *,
    anchor: str = "start",
    fill: str = "#333333",
    weight: str = "normal",
    more: str = "",
) -> str:
    return (
        f'<text x="{place[0]:g}" y="{place[1]:g}" text-anchor="{anchor}" fill="{fill}" '
        f'font-weight="{weight}" {more}>{escape(text)}</text>'
    )
