"""Plots for the documentation: lines in an SVG that needs no library, and is readable on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 640, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 150, 36, 46
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
_GREY = "#808080"

Line = Sequence[tuple[float, float]]


def plot(path: Path, title: str, x: str, y: str, lines: Mapping[str, Line], *, log_x: bool = False) -> None:
    """Write one plot: a title, what the axes are, and named lines."""
    points = [point for line in lines.values() for point in line]
    ends = min(point[0] for point in points), max(point[0] for point in points)
    top = _round_up(max(point[1] for point in points))

    def across(value: float) -> float:
        low, high, here = (math.log10(v) for v in (*ends, value)) if log_x else (*ends, value)
        return _LEFT + (here - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    def down(value: float) -> float:
        return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM)

    parts = [_text(_LEFT, 20, title, size=15), _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, x, "middle")]
    parts.append(_text(_LEFT, _TOP - 4, y, "end"))
    for step in range(5):
        value = top * step / 4
        parts.append(_stroke([(_LEFT, down(value)), (_WIDTH - _RIGHT, down(value))], _GREY, 0.4))
        parts.append(_text(_LEFT - 6, down(value) + 4, _show(value), "end"))
    for value in _marks(*ends, log_x=log_x):
        parts.append(_text(across(value), _HEIGHT - _BOTTOM + 16, _show(value), "middle"))
    for number, (name, line) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(_stroke([(across(a), down(b)) for a, b in line], colour, 2))
        parts.append(_text(_WIDTH - _RIGHT + 10, _TOP + 14 + 18 * number, name, colour=colour))
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    path.write_text("\n".join([head, *parts, "</svg>"]) + "\n", encoding="utf-8")


def _marks(low: float, high: float, *, log_x: bool) -> list[float]:
    if log_x:
        return [10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
    return [low + (high - low) * step / 6 for step in range(7)]


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 8 and 10 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value or 1))
    return next(step * power for step in (1, 2, 4, 8, 10) if step * power >= value)


def _show(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:,.0f}k"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _text(x: float, y: float, text: str, anchor: str = "start", *, size: int = 12, colour: str = _GREY) -> str:
    style = f'text-anchor="{anchor}" font-size="{size}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'


def _stroke(points: Line, colour: str, width: float) -> str:
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width}"/>'
