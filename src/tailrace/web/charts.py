"""Small charts: a line over the last hour, as SVG that needs neither scripts nor styles of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tailrace.web.html import Markup, tag

WIDTH, HEIGHT = 120, 24
POINTS_MAX = 120
_HOUR_S = 3600.0
_SPAN_MIN_S = 60.0
"""What is younger than an hour fills the width, if it is not only moments."""


def sparkline(points: Sequence[tuple[float, float]], label: str) -> Markup:
    """Values over time; nothing while there are fewer than two."""
    if len(points) < 2:
        return Markup("")
    found = _thinned(points)
    end_s, top = found[-1][0], max(value for _, value in found) or 1.0
    span_s = min(_HOUR_S, max(_SPAN_MIN_S, end_s - found[0][0]))
    spots = " ".join(
        f"{WIDTH - WIDTH * (end_s - at_s) / span_s:.1f},{HEIGHT - 1 - (HEIGHT - 2) * value / top:.1f}"
        for at_s, value in _bends([point for point in found if end_s - point[0] <= _HOUR_S])
    )
    said = f"{label}: now {found[-1][1]:,.0f}, at most {top:,.0f}"
    line = tag("polyline", points=spots, fill="none", class_="line")
    return tag(
        "svg",
        tag("title", said),
        line,
        class_="spark",
        role="img",
        aria_label=said,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        width=WIDTH,
        height=HEIGHT,
    )


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The highest of each stretch stays: a short peak is what one looks for."""
    step = max(1, -(-len(points) // POINTS_MAX))
    found = [max(points[place : place + step], key=lambda point: point[1]) for place in range(0, len(points), step)]
    return [*found[:-1], points[-1]] if found[-1] != points[-1] else found


def _bends(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Without those inside a level stretch: the line is the same."""
    for place, point in enumerate(points):
        is_end = place in (0, len(points) - 1)
        if is_end or not points[place - 1][1] == point[1] == points[place + 1][1]:
            yield point
