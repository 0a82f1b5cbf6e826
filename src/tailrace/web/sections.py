"""The sections of the page. Each is made from the status model alone, here and nowhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from urllib.parse import quote

from tailrace.observe.history import LOG, History, Name
from tailrace.observe.model import Health, Kind, Overview, Part, Stuck, TreeNode, Wrong
from tailrace.units import show_bytes, show_seconds
from tailrace.web.charts import sparkline
from tailrace.web.flow import draw
from tailrace.web.html import Child, Markup, join, table, tag

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
    Kind.SYNC: "Sync",
    Kind.CONSUMER: "Other consumers of the log",
}


def sections(overview: Overview, history: History) -> dict[str, Markup]:
    """By their ids, in the order of the page."""
    found = {
        "summary": _summary(overview),
        "trouble": _troubles(overview),
        "flow": _flow(overview),
        "log": _log(overview, history),
    }
    for kind in _TITLES:
        parts = overview.of(kind)
        found[f"parts-{kind}"] = _parts(kind, parts, history) if parts else Markup("")
    found["tree"] = _tree(overview)
    found["namespaces"] = _namespaces(overview)
    return found


def mark_of(health: Health) -> Markup:
    """A sign with a word beside it: colour alone says nothing to many."""
    sign = tag("span", _MARKS[health], class_=f"mark {health}", aria_hidden="true")
    return join(sign, " ", tag("span", str(health), class_="word"))


def _flow(overview: Overview) -> Markup:
    caption = tag("figcaption", "From the left to the right; the tables say the same.")
    return tag(
        "figure",
        tag("div", draw(overview), class_="picture", tabindex=0, role="region", aria_label="The flow"),
        caption,
    )


def _summary(overview: Overview) -> Markup:
    runs = f"· {overview.runs_as}" if overview.is_running else "· does not run"
    return join(
        tag("h1", f"{overview.what} {overview.name}"),
        tag("p", mark_of(overview.health), " ", runs, role="status"),
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
    return tag("div", tag("h2", "What needs you"), tag("ul", *items), class_="trouble")


def _wrong(wrong: Wrong) -> Markup:
    age = "" if wrong.age_s is None else f" ({show_seconds(wrong.age_s)} ago)"
    cure = tag("pre", wrong.cure) if wrong.cure else ""
    return join(tag("span", f"{wrong.what}{age} "), tag("code", wrong.code), cure)


def _stuck(writer: str, stuck: Stuck) -> Markup:
    which = f"message {stuck.first}" if stuck.is_single else f"messages {stuck.first} to {stuck.last}"
    told = f"writer {writer} could not write {which}, {show_seconds(stuck.age_s)} ago: {stuck.what}"
    return join(
        tag("p", told),
        tag(
            "p",
            tag("a", "Look at it", href=f"/log/{stuck.first}"),
            " · ",
            tag("a", "Retry or acknowledge", href=f"/stuck/{_path(writer)}"),
        ),
    )


def _log(overview: Overview, history: History) -> Markup:
    log = overview.log
    if log is None:
        return tag("p", "There is no log yet.", class_="none")
    facts: list[tuple[str, Child]] = [
        ("Messages", f"{log.messages:,}"),
        ("Offsets", f"{log.oldest:,} to {log.next_offset - 1:,}"),
        ("Size", show_bytes(log.bytes)),
        ("Appended", _rate(log.rate)),
    ]
    listed = tag("dl", *(join(tag("dt", name), tag("dd", value)) for name, value in facts))
    held: list[list[Child]] = [[name, show_bytes(size)] for name, size in sorted(log.held_bytes.items())]
    return join(
        tag("h2", "Log"),
        listed,
        sparkline(history.rates(LOG), "Messages appended a second, in the last hour"),
        tag("h3", "Who keeps the log"),
        table("Who keeps the log", ["Consumer", "Keeps"], held[:ROWS_MAX], "nobody"),
        tag("p", tag("a", "Look into the log", href="/log")),
    )


def _parts(kind: Kind, parts: list[Part], history: History) -> Markup:
    headings = [
        "Name",
        "Health",
        "State",
        "Position",
        "Lag",
        "Lag in bytes",
        "Lag in time",
        "Rate",
        "Last hour",
        "Seen",
    ]
    rows = [list(_row(part, history)) for part in parts[:ROWS_MAX]]
    more = len(parts) - len(rows)
    return join(
        tag("h2", _TITLES[kind]),
        table(_TITLES[kind], headings, rows),
        tag("p", f"and {more} more: tailrace top, or /api/overview") if more else "",
    )


def _row(part: Part, history: History) -> Iterator[Child]:
    yield join(part.name, tag("br"), tag("small", part.where)) if part.where else part.name
    yield mark_of(part.health)
    extra = ", ".join(f"{name} {value}" for name, value in part.more.items() if value)
    yield join(part.state, tag("br"), tag("small", extra)) if extra else part.state
    yield part.position
    lag = part.lag
    yield None if lag is None else lag.messages
    yield None if lag is None else show_bytes(lag.bytes)
    yield None if lag is None else show_seconds(lag.seconds)
    yield _rate(part.rate)
    name: Name = (part.kind, part.name)
    yield None if lag is None else sparkline(history.lags(name), f"Lag of {part.name} in messages, in the last hour")
    yield "never" if part.seen_s_ago is None else f"{show_seconds(part.seen_s_ago)} ago"


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


def _namespaces(overview: Overview) -> Markup:
    rows: list[list[Child]] = []
    for each in overview.namespaces[:ROWS_MAX]:
        copied = ""
        if each.rows_copied is not None:
            copied = f"{each.rows_copied:,}" + ("" if each.rows is None else f" of about {each.rows:,}")
        name = tag("a", each.name, href=f"/log?namespace={_path(each.name)}")
        rows.append([name, each.phase, copied, each.messages, show_bytes(each.bytes), each.last])
    more = len(overview.namespaces) - len(rows)
    headings = ["Namespace", "Phase", "Rows copied", "Messages", "Size", "Last offset"]
    return join(
        tag("h2", "Namespaces"),
        table("Namespaces", headings, rows),
        tag("p", f"and {more} more") if more else "",
    )


def _path(name: str) -> str:
    return quote(name, safe="")
