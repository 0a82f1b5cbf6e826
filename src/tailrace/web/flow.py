"""The flow, drawn: sources, the log, functions, and those whom it goes to, with counts and lag on the arrows."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.observe.model import Kind, Overview, Part
from tailrace.web.html import Markup, tag

_LEFT = (Kind.READER, Kind.SOURCE)
_RIGHT = (Kind.WRITER, Kind.PEER, Kind.QUEUE, Kind.SYNC, Kind.REPLICA, Kind.CONSUMER)
_DRAWN_MAX = 10
_ROW, _BOX_W, _BOX_H = 64, 190, 44
_LEFT_X, _LOG_X, _STEPS_X, _RIGHT_X, _WIDTH = 10, 330, 600, 980, 1180
_LETTERS = 24


def draw(overview: Overview) -> Markup:
    """One picture; what does not fit in is counted."""
    left = overview.of(*_LEFT)
    right = [part for part in overview.of(*_RIGHT) if not part.name.startswith("_")]  # ours are nobody's destination
    if overview.what == "replica":
        ours = [part for part in overview.of(Kind.REPLICA) if part.name == overview.name]
        left, right = ours, [part for part in overview.of(Kind.REPLICA, Kind.CONSUMER, Kind.STORE) if part not in ours]
    height = _ROW * max(1, min(len(left), _DRAWN_MAX + 1), min(len(right), _DRAWN_MAX + 1)) + 20
    middle = height / 2
    drawn = [*_side(left, _LEFT_X, height), *_side(right, _RIGHT_X, height), *_log(overview, middle)]
    for part, y in _placed(left, height):
        drawn += _arrow(_LEFT_X + _BOX_W, y, _LOG_X, middle, _told(part))
    for part, y in _placed(right, height):
        drawn += _out(part, middle, y)
    label = f"{overview.name}: {len(left)} in, {len(right)} out"
    return tag(
        "svg",
        tag("title", label),
        *drawn,
        class_="flow",
        role="img",
        aria_label=label,
        viewBox=f"0 0 {_WIDTH} {height}",
    )


def _out(part: Part, middle: float, y: float) -> Iterator[Markup]:
    """From the log, through functions if there are any, to who gets it."""
    if part.steps:
        yield from _arrow(_LOG_X + _BOX_W, middle, _STEPS_X, y, "")
        yield from _box(_STEPS_X, y, " ▸ ".join(part.steps), "", "steps")
        yield from _arrow(_STEPS_X + _BOX_W, y, _RIGHT_X, y, _told(part))
    else:
        yield tag("path", d=_curve(_LOG_X + _BOX_W, middle, _STEPS_X, y), class_="arrow")
        yield from _arrow(_STEPS_X, y, _RIGHT_X, y, _told(part))


def _placed(parts: list[Part], height: int) -> list[tuple[Part, float]]:
    shown = parts[:_DRAWN_MAX]
    rows = len(shown) + (len(parts) > _DRAWN_MAX)
    return [(part, height * (place + 0.5) / max(1, rows)) for place, part in enumerate(shown)]


def _side(parts: list[Part], x: int, height: int) -> Iterator[Markup]:
    for part, y in _placed(parts, height):
        yield from _box(x, y, part.name, f"{part.kind}, {part.state}", str(part.health))
    if (more := len(parts) - _DRAWN_MAX) > 0:
        yield tag("text", f"and {more} more", x=x, y=height - 8, class_="more")


def _log(overview: Overview, y: float) -> Iterator[Markup]:
    log = overview.log
    told = "no log yet" if log is None else f"{log.messages:,} messages"
    yield from _box(_LOG_X, y, "log", told, "log")


def _box(x: float, y: float, name: str, below: str, kind: str) -> Iterator[Markup]:
    yield tag("rect", x=x, y=y - _BOX_H / 2, width=_BOX_W, height=_BOX_H, rx=6, class_=f"box {kind}")
    if below:
        yield tag("text", _cut(name), x=x + 10, y=y - 3, class_="name")
        yield tag("text", _cut(below), x=x + 10, y=y + 14, class_="below")
    else:
        yield tag("text", _cut(name), x=x + 10, y=y + 5, class_="name")


def _arrow(x: float, y: float, to_x: float, to_y: float, told: str) -> Iterator[Markup]:
    tip = f"M{to_x - 8:.0f} {to_y - 4:.0f} L{to_x:.0f} {to_y:.0f} L{to_x - 8:.0f} {to_y + 4:.0f}"
    yield tag("path", d=_curve(x, y, to_x - 6, to_y), class_="arrow")
    yield tag("path", d=tip, class_="tip")
    if told:
        yield tag("text", told, x=to_x - 12, y=to_y - 8, class_="told")


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    half = (x + to_x) / 2
    return f"M{x:.0f} {y:.0f} C{half:.0f} {y:.0f} {half:.0f} {to_y:.0f} {to_x:.0f} {to_y:.0f}"


def _told(part: Part) -> str:
    """What is said on an arrow: how fast, and how much is still to come."""
    rate = "" if part.rate is None else f"{part.rate:,.0f}/s"
    lag = "" if part.lag is None else f"{part.lag.messages:,} behind"
    return ", ".join(each for each in (rate, lag) if each)


def _cut(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"
