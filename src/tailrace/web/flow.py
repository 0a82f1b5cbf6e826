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
_NARROW_W, _TRUNK_X, _BRANCH_X = 360, 24, 60
_LETTERS = 24


def draw(overview: Overview, *, is_wide: bool = True) -> Markup:
    """One picture, from the left to the right or from above; what does not fit in is counted."""
    left, right = _sides(overview)
    drawn, width, height = (_wide if is_wide else _narrow)(overview, left, right)
    label = f"{overview.name}: {len(left)} in, {len(right)} out"
    return tag(
        "svg",
        tag("title", label),
        *drawn,
        class_="flow",
        role="img",
        aria_label=label,
        viewBox=f"0 0 {width} {height}",
    )


def _sides(overview: Overview) -> tuple[list[Part], list[Part]]:
    """Whence it comes, and who gets it."""
    if overview.what == "replica":
        ours = [part for part in overview.of(Kind.REPLICA) if part.name == overview.name]
        return ours, [part for part in overview.of(Kind.REPLICA, Kind.CONSUMER, Kind.STORE) if part not in ours]
    others = [part for part in overview.of(*_RIGHT) if not part.name.startswith("_")]  # ours are nobody's destination
    return overview.of(*_LEFT), others


def _wide(overview: Overview, left: list[Part], right: list[Part]) -> tuple[list[Markup], int, int]:
    height = _ROW * max(1, min(len(left), _DRAWN_MAX + 1), min(len(right), _DRAWN_MAX + 1)) + 20
    middle = height / 2
    drawn = [*_side(left, _LEFT_X, height), *_side(right, _RIGHT_X, height), *_log(overview, _LOG_X, middle)]
    for part, y in _placed(left, height):
        drawn += _arrow(_LEFT_X + _BOX_W, y, _LOG_X, middle, _told(part))
    for part, y in _placed(right, height):
        drawn += _out(part, middle, y)
    return drawn, _WIDTH, height


def _narrow(overview: Overview, left: list[Part], right: list[Part]) -> tuple[list[Markup], int, int]:
    """Sources, the log below them, and below that a trunk with a branch to each who gets it."""
    drawn: list[Markup] = []
    box_w, y = _NARROW_W - 2 * _LEFT_X, 30.0
    for part in left[:_DRAWN_MAX]:
        drawn += _box(_LEFT_X, y, part.name, f"{part.kind}, {part.state}", str(part.health), box_w)
        drawn += _down(_TRUNK_X, y + _BOX_H / 2, y + _ROW + 10 - _BOX_H / 2, _told(part))
        y += _ROW + 10
    drawn += _more(left, _LEFT_X, y)
    y += 20 if len(left) > _DRAWN_MAX else 0
    drawn += _log(overview, _LEFT_X, y, box_w)
    begin, end = y + _BOX_H / 2, y
    for part in right[:_DRAWN_MAX]:
        y += _ROW + 10
        end = y
        through = f"{' ▸ '.join(part.steps)} ▸ " if part.steps else ""
        told = f"{through}{_told(part)}".removesuffix(" ▸ ")
        drawn.append(tag("text", told, x=_BRANCH_X, y=y - _BOX_H / 2 - 8, class_="below"))
        drawn += _arrow(_TRUNK_X, y, _BRANCH_X, y, "")
        drawn += _box(_BRANCH_X, y, part.name, f"{part.kind}, {part.state}", str(part.health), _NARROW_W - 70)
    if end > begin:
        drawn.append(tag("path", d=f"M{_TRUNK_X} {begin:.0f} V{end:.0f}", class_="arrow"))
    drawn += _more(right, _BRANCH_X, y + _BOX_H / 2 + 20)
    return drawn, _NARROW_W, round(y + _BOX_H / 2 + (30 if len(right) > _DRAWN_MAX else 8))


def _down(x: float, y: float, to_y: float, told: str) -> Iterator[Markup]:
    yield tag("path", d=f"M{x:.0f} {y:.0f} V{to_y - 6:.0f}", class_="arrow")
    yield tag("path", d=f"M{x - 4:.0f} {to_y - 8:.0f} L{x:.0f} {to_y:.0f} L{x + 4:.0f} {to_y - 8:.0f}", class_="tip")
    if told:
        yield tag("text", told, x=x + 14, y=(y + to_y) / 2 + 4, class_="below")


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
    yield from _more(parts, x, height - 8)


def _more(parts: list[Part], x: float, y: float) -> Iterator[Markup]:
    if (more := len(parts) - _DRAWN_MAX) > 0:
        yield tag("text", f"and {more} more", x=x, y=y, class_="more")


def _log(overview: Overview, x: float, y: float, width: float = _BOX_W) -> Iterator[Markup]:
    log = overview.log
    told = "no log yet" if log is None else f"{log.messages:,} messages"
    yield from _box(x, y, "log", told, "log", width)


def _box(x: float, y: float, name: str, below: str, kind: str, width: float = _BOX_W) -> Iterator[Markup]:
    letters = round(_LETTERS * width / _BOX_W)
    yield tag("rect", x=x, y=y - _BOX_H / 2, width=width, height=_BOX_H, rx=8, class_=f"box {kind}")
    if below:
        yield tag("text", _cut(name, letters), x=x + 12, y=y - 3, class_="name")
        yield tag("text", _cut(below, letters), x=x + 12, y=y + 14, class_="below")
    else:
        yield tag("text", _cut(name, letters), x=x + 12, y=y + 5, class_="name")


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
    """What is said on an arrow: how many have passed, how fast, and how many are still to come."""
    passed = "" if part.position is None else f"{part.position + 1:,}"
    rate = "" if part.rate is None else f"{part.rate:,.0f}/s"
    lag = "" if part.lag is None else f"{part.lag.messages:,} behind"
    return " · ".join(each for each in (passed, rate, lag) if each)


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"
