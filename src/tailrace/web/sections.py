"""The sections of the page. Each is made from the status model alone, here and nowhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import Final
from urllib.parse import quote

from tailrace.errors import TailraceError
from tailrace.message import EPOCH, SECONDS_MAX
from tailrace.observe.history import LOG, History, Name
from tailrace.observe.model import Health, Kind, NamespacePart, Overview, Part, Stuck, TreeNode, Wrong
from tailrace.units import show_bytes, show_seconds
from tailrace.web.charts import sparkline
from tailrace.web.flow import draw
from tailrace.web.html import Child, Markup, join, row, table, tag, tiles

SIGHT: Final = "sight"
"""The section that says that there is nothing to be seen any more."""
ROWS_MAX = 200
"""So many rows of a table are shown; the others are counted."""
TREE_MAX = 1000
_DEPTH_MAX = 30
"""A chain of replicas that is longer goes on without being set in further."""
_MARKS = {Health.GOOD: "●", Health.WAITING: "○", Health.TROUBLED: "▲", Health.BAD: "✖"}
_TITLES = {
    Kind.READER: "Reader",
    Kind.WRITER: "Writers",
    Kind.SOURCE: "Nodes that are followed",
    Kind.PEER: "Nodes that follow",
    Kind.REPLICA: "Replicas",
    Kind.STORE: "Store",
    Kind.QUEUE: "Queues: what is sent",
    Kind.RECEIVED: "Queues: what comes",
    Kind.SNAPSHOT: "Queues: snapshots that are asked for",
    Kind.SYNC: "Sync",
    Kind.TABLE: "Synced tables",
    Kind.CONSUMER: "Other consumers of the log",
}
_HEADINGS = [
    "Name",
    "Health",
    "State",
    "Position",
    "Lag",
    "Lag in bytes",
    "Lag in time",
    "Lag, last hour",
    "Rate",
    "Rate, last hour",
    "Seen",
]


class Sections:
    """Makes the sections again and again; what has not changed since the last time is not made anew. For one thread."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[object, Markup]] = {}
        self._used: dict[Hashable, tuple[object, Markup]] = {}

    def of(self, overview: Overview, history: History) -> dict[str, Markup]:
        """By their ids, in the order of the page."""
        found = {
            "summary": _summary(overview),
            "trouble": _troubles(overview),
            "flow": _flow(overview),
            "log": _log(overview, history),
        }
        for kind in _TITLES:
            parts = overview.of(kind)
            found[f"parts-{kind}"] = self._parts(kind, parts, history) if parts else Markup("")
        found["tree"] = self._once("tree", overview.tree, lambda: _tree(overview))
        found["namespaces"] = self._namespaces(overview)
        self._known, self._used = self._used, {}
        return found

    def _once(self, name: Hashable, about: object, make: Callable[[], Markup]) -> Markup:
        """The same as before, if it is about the same."""
        known = self._known.get(name)
        made = known if known is not None and (known[0] is about or known[0] == about) else (about, make())
        self._used[name] = made
        return made[1]

    def _parts(self, kind: Kind, parts: list[Part], history: History) -> Markup:
        rows = [self._part(part, history) for part in parts[:ROWS_MAX]]
        more = len(parts) - len(rows)
        return join(
            tag("h2", _TITLES[kind]),
            table(_TITLES[kind], _HEADINGS, rows),
            tag("p", f"and {more} more: tailrace top, or /api/overview") if more else "",
        )

    def _part(self, part: Part, history: History) -> Markup:
        """The charts change only with the samples, a row only when something in it does."""
        name: Name = (part.kind, part.name)
        charts = (Markup(""), Markup(""))
        if part.lag is not None or part.position is not None:
            lags = self._once((*name, "lag"), history.version, lambda: _lag_chart(part, history))
            rates = self._once((*name, "rate"), history.version, lambda: _rate_chart(part, history))
            charts = (lags, rates)
        cells = list(_cells(part, *charts))
        return self._once(name, cells, lambda: row(cells))

    def _namespaces(self, overview: Overview) -> Markup:
        shown = overview.namespaces[:ROWS_MAX]
        rows = [self._once(("namespace", each.name), each, lambda each=each: _namespace(each)) for each in shown]  # type: ignore[misc]
        more = len(overview.namespaces) - len(rows)
        headings = ["Namespace", "Phase", "Rows copied", "Messages", "Size", "Last offset"]
        return join(
            tag("h2", "Namespaces"),
            table("Namespaces", headings, rows),
            tag("p", f"and {more} more") if more else "",
        )


def sight_lost(error: TailraceError, seen_s: float) -> Markup:
    """What is below is old, and why."""
    told = tag("p", f"What is shown is of {_clock(seen_s)}: it cannot be looked at any more.")
    return tag("div", told, _wrong(Wrong(error.code, error.what, error.hint)), class_="trouble", role="alert")


def mark_of(health: Health) -> Markup:
    """A sign with a word beside it: colour alone says nothing to many."""
    sign = tag("span", _MARKS[health], class_="mark", aria_hidden="true")
    return tag("span", sign, " ", tag("span", str(health), class_="word"), class_=f"badge {health}")


def _clock(at_s: float) -> str:
    return f"{EPOCH.fromtimestamp(min(max(0.0, at_s), SECONDS_MAX), EPOCH.tzinfo):%H:%M:%S} UTC"


def _flow(overview: Overview) -> Markup:
    pictures = [
        tag(
            "div",
            draw(overview, is_wide=is_wide),
            class_=f"picture {name}",
            tabindex=0,
            role="region",
            aria_label=label,
        )
        for is_wide, name, label in ((True, "wide", "The flow"), (False, "narrow", "The flow, from above"))
    ]
    return tag("figure", *pictures, tag("figcaption", "How messages go; the tables say the same."))


def _summary(overview: Overview) -> Markup:
    seen = tag("small", f"seen {_clock(overview.at_s)}")
    return tag(
        "div",
        tag("h1", f"{overview.what} {overview.name}"),
        tag("p", mark_of(overview.health), " ", overview.runs, " ", seen),
        tag("p", tag("small", overview.extra)) if overview.extra else "",
        class_="summary",
    )


def _troubles(overview: Overview) -> Markup:
    """What needs somebody, first of all."""
    items: list[Markup] = [tag("li", _wrong(wrong)) for wrong in overview.wrong]
    for part in overview.parts:
        if part.stuck is not None:
            items.append(tag("li", _stuck(part.name, part.stuck)))
        elif part.wrong is not None:
            items.append(tag("li", tag("strong", f"{part.kind} {part.name}: "), _wrong(part.wrong)))
    if not items:
        return Markup("")
    shown = items[:ROWS_MAX]
    more = tag("p", f"and {len(items) - len(shown)} more") if len(items) > len(shown) else ""
    return tag("div", tag("h2", "What needs you"), tag("ul", *shown), more, class_="trouble")


def _wrong(wrong: Wrong) -> Markup:
    age = "" if wrong.age_s is None else f" ({show_seconds(wrong.age_s)} ago)"
    cure = tag("pre", wrong.cure) if wrong.cure else ""
    return join(tag("span", f"{wrong.what}{age} "), tag("code", wrong.code), cure)


def _stuck(writer: str, stuck: Stuck) -> Markup:
    told = f"writer {writer} could not write {stuck.which}, {show_seconds(stuck.age_s)} ago: {stuck.what}"
    return join(
        tag("p", told),
        tag(
            "p",
            tag("a", "Look at it", href=f"/log/{stuck.first}", class_="button"),
            " ",
            tag("a", "Retry or acknowledge", href=f"/stuck/{_path(writer)}", class_="button"),
        ),
    )


def _log(overview: Overview, history: History) -> Markup:
    log = overview.log
    if log is None:
        return tag("p", "There is no log yet.", class_="none")
    chart = sparkline(history.rates(LOG), "Messages appended a second, in the last hour")
    listed = tiles(
        ("Messages", f"{log.messages:,}"),
        ("Offsets", f"{log.oldest:,} to {log.next_offset - 1:,}"),
        ("Size", show_bytes(log.bytes)),
        ("Appended", join(_rate(log.rate) or "unknown yet", " ", chart)),
    )
    held: list[list[Child]] = [
        [name, show_bytes(size)] for name, size in sorted(log.held_bytes.items(), key=lambda item: (-item[1], item[0]))
    ]
    more = len(held) - ROWS_MAX
    keepers = tag(
        "details",
        tag("summary", f"Who keeps the log ({len(held):,})"),
        table("Who keeps the log", ["Consumer", "Keeps"], [row(each) for each in held[:ROWS_MAX]], "nobody"),
        tag("p", f"and {more} more") if more > 0 else "",
    )
    return join(tag("h2", "Log"), listed, keepers, tag("p", tag("a", "Look into the log", href="/log")))


def _cells(part: Part, lags: Markup, rates: Markup) -> Iterator[Child]:
    yield join(part.name, tag("br"), tag("small", part.where)) if part.where else part.name
    yield mark_of(part.health)
    yield join(part.state, tag("br"), tag("small", part.extra)) if part.extra else part.state
    yield part.position
    lag = part.lag
    yield None if lag is None else lag.messages
    yield None if lag is None or lag.bytes is None else show_bytes(lag.bytes)
    yield None if lag is None or lag.seconds is None else show_seconds(lag.seconds)
    yield lags
    yield _rate(part.rate)
    yield rates
    yield part.seen


def _lag_chart(part: Part, history: History) -> Markup:
    return sparkline(history.lags((part.kind, part.name)), f"Lag of {part.name} in messages, in the last hour")


def _rate_chart(part: Part, history: History) -> Markup:
    return sparkline(history.rates((part.kind, part.name)), f"Messages a second of {part.name}, in the last hour")


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.1f}/s"


def _tree(overview: Overview) -> Markup:
    """Branches fold; those where all is well are folded below the second tier."""
    if not overview.tree:
        return Markup("")
    shown = overview.tree[:TREE_MAX]
    below: dict[str | None, list[TreeNode]] = {}
    depths: dict[str, int] = {}
    anchors: dict[str, str | None] = {}
    for node in shown:  # those above come first
        depth = depths.get(node.below or "", -1) + 1
        anchor = node.below if node.below in depths else None
        if depth > _DEPTH_MAX:
            anchor = anchors[node.below or ""]  # beside the one above it, instead of below
            depth = _DEPTH_MAX
        depths[node.name], anchors[node.name] = depth, anchor
        below.setdefault(anchor, []).append(node)
    more = len(overview.tree) - len(shown)
    counted = Counter(str(node.health) for node in overview.tree)
    told = ", ".join(f"{count:,} {health}" for health, count in sorted(counted.items()))
    return join(
        tag("h2", "Topology"),
        tag("p", f"{len(overview.tree):,} nodes: {told}"),
        _branch(below, None, 0),
        tag("p", f"and {more} more: tailrace topology show") if more else "",
    )


def _branch(below: dict[str | None, list[TreeNode]], name: str | None, depth: int) -> Markup:
    items = []
    for node in below.get(name, ()):
        said = join(mark_of(node.health), " ", tag("strong", node.name), f" {node.told}")
        if inner := _branch(below, node.name, depth + 1):
            is_open = depth < 2 or any(each.health is Health.BAD for each in below[node.name])
            items.append(tag("li", tag("details", tag("summary", said), inner, open=is_open)))
        else:
            items.append(tag("li", said))
    return tag("ul", *items, class_="tree") if items else Markup("")


def _namespace(each: NamespacePart) -> Markup:
    name = tag("a", each.name, href=f"/log?namespace={_path(each.name)}")
    return row([name, each.phase, each.copied, each.messages, show_bytes(each.bytes), each.last])


def _path(name: str) -> str:
    return quote(name, safe="")
