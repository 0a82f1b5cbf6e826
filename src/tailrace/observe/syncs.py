"""Sync as the status model has it: by what a node says of its peers, and by what stands in a database."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tailrace.observe.model import Health, Kind, Lag, Overview, Part, Wrong
from tailrace.observe.syncruns import SILENT_S, SyncRun
from tailrace.units import show_seconds

if TYPE_CHECKING:
    from tailrace.sync.room import Held
    from tailrace.sync.standing import EntityStatus
    from tailrace.sync.store import SyncStore

_STATES: Final = {"waiting": Health.GOOD, "syncing": Health.GOOD}
_FIGURES: Final = {"rounds": "rounds", "rows fetched": "fetched", "rows sent": "sent", "rows refused": "refused"}
_LATELY_S: Final = 300.0
"""A node that calls was here within this time, or is away."""


def sync_parts(told: Mapping[str, Any] | None) -> Iterator[Part]:
    """The node's own part in sync, and the nodes with which tables are synced."""
    if told is None:
        return
    yield from _own(told)
    for _, part in _nodes(told["peers"], told["known"] or ()):
        yield part


def overview_of_sync(file: str, store: SyncStore, run: SyncRun | None = None) -> Overview:
    """What stands in the database that a file names, and what the last run has said of its peers."""
    found = store.status()
    known = [each.told() for each in store.standings()]
    parts = [*map(_table, found.entities)]
    if run is not None:
        parts += _own(run.told)
    for node, part in _nodes(() if run is None else _still_so(run, known), known):
        parts.append(part if node is None else _with_held(part, found.held.get(node), is_full=node in found.full))
    is_running = None if run is None else run.runs_as is not None
    by_what = "by what stands in its database" if run is None else run.runs_as
    quarantine = {f"in quarantine, {kind}": count for kind, count in found.quarantine.items()}
    return Overview(
        name=store.database.place,
        what="sync",
        at_s=time.time(),
        is_running=is_running,
        runs_as=f"node {found.node}, {by_what}",
        told_s_ago=None if run is None else run.age_s,
        parts=tuple(map(Part.away, parts) if is_running is False else parts),
        wrong=(*_silent(run), *(not_declared(file, table) for table in store.not_declared())),
        more={"changes not looked at yet": found.changes, **quarantine},
    )


def _nodes(peers: Iterable[Mapping[str, Any]], known: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int | None, Part]]:
    """Those that are called, then the others that the database knows; each with its number, where that is known."""
    by_node, by_name = ({each[key]: each for each in known} for key in ("node", "name"))
    called = set()
    for each in peers:  # one that has not answered yet is known by its name, if it ever has
        standing = by_node.get(each["node"]) or by_name.get(each["name"])
        if standing is not None:
            called.add(standing["node"])
        yield (None if standing is None else int(standing["node"])), _called(each, standing)
    for node, each in by_node.items():
        if node not in called:
            yield int(node), _known(each)


def _still_so(run: SyncRun, known: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """What a run has said of its peers; if it has ended, only of those that nobody has heard of since."""
    later = {each["node"] for each in known if each["seen_ms"] / 1000 > run.at_s and run.runs_as is None}
    return (each for each in run.told["peers"] if each["node"] not in later)


def _silent(run: SyncRun | None) -> Iterator[Wrong]:
    if run is not None and run.runs_as is not None and run.age_s > SILENT_S:
        text = f"it runs, but has not said for {show_seconds(run.age_s)} how it is: what is told of peers is as old"
        yield Wrong(
            "node.silent", text, "look at what it says on stderr; if it hangs, end it and start it again", run.age_s
        )


def _own(told: Mapping[str, Any]) -> Iterator[Part]:
    """The node itself, if something is wrong with its own database."""
    if (own := Wrong.of(told["error"])) is not None:
        yield Part(Kind.SYNC, f"node {told['node']}", told["url"] or "", "its database is away", Health.BAD, wrong=own)


def not_declared(file: str, table: str) -> Wrong:
    """What is wrong with a table that is not in the file any more."""
    what = f"{table} is installed too, and not in this file, so its changes only pile up"
    return Wrong("sync.not_declared", what, f"tailrace sync uninstall {file} --table {table}")


def _called(told: Mapping[str, Any], standing: Mapping[str, Any] | None) -> Part:
    """A node that this one calls."""
    wrong = Wrong.of(told["last_error"])
    health = Health.TROUBLED if wrong is not None else _STATES.get(told["state"], Health.WAITING)
    if told["clock_warning"] is not None and wrong is None:
        wrong = Wrong("sync.clock", told["clock_warning"], "set the clocks of both nodes by NTP")
        health = Health.TROUBLED
    if told["warnings"] and wrong is None:
        wrong = Wrong("sync.left", "; ".join(told["warnings"]), "do what it says; the rows wait until then")
        health = Health.TROUBLED
    return Part(
        Kind.SYNC,
        told["name"],
        told["url"],
        told["state"],
        health,
        lag=None if standing is None else _lag(standing),
        moved=told["fetched"] + told["sent"],
        seen_s_ago=_age_s(told["last_success_ms"]),
        wrong=wrong,
        more={name: told[key] for name, key in _FIGURES.items()},
    )


def _known(told: Mapping[str, Any]) -> Part:
    """A node that is known in the database."""
    node, name = told["node"], told["name"]
    seen_s_ago = _age_s(told["seen_ms"])
    is_here = seen_s_ago is not None and seen_s_ago < _LATELY_S
    return Part(
        Kind.SYNC,
        name or f"node {node}",
        "calls this node" if told["calls_us"] else "is called",
        "here lately" if is_here else "never here" if seen_s_ago is None else "away",
        Health.GOOD if is_here else Health.WAITING,
        lag=_lag(told),
        seen_s_ago=seen_s_ago,
        more={"node": node} if name else {},
    )


def _with_held(part: Part, held: Held | None, *, is_full: bool) -> Part:
    """The same with what is in quarantine because of it."""
    if held is None:
        return part
    found = replace(part, more={**part.more, "in quarantine because of it": held.shown})
    if not is_full:
        return found
    what = "there is no room for more of it in quarantine: what else it sends and nobody takes stays there"
    wrong = Wrong("sync.no_room", what, "tailrace sync quarantine list FILE, then mend why, or release")
    return replace(found, health=Health.TROUBLED, wrong=wrong)


def _table(found: EntityStatus) -> Part:
    """What waits for several nodes waits once for each of them."""
    waiting = sum(found.pending.values())
    more = {"rows": found.rows, "deleted": found.tombstones, "waiting for other rows": found.waiting}
    wrong = None
    if found.waiting:
        what = f"{found.waiting} of its rows came and wait for others, to which they refer or which refer to them"
        cure = "tailrace sync quarantine list FILE says for which; they are taken by themselves when these come"
        wrong = Wrong("sync.waiting", what, cure)
    return Part(
        Kind.TABLE,
        found.table,
        f"tableId {found.table_id}",
        "synced" if wrong is None else "rows wait for others",
        Health.GOOD if wrong is None else Health.TROUBLED,
        lag=Lag(waiting, None, None),
        wrong=wrong,
        more=more,
    )


def _lag(standing: Mapping[str, Any]) -> Lag:
    """The oldest row may have been changed elsewhere, by a clock that is ahead."""
    waiting, oldest_ms = standing["waiting"], standing.get("oldest_ms")
    return Lag(waiting, None, _age_s(oldest_ms) if waiting else 0.0)


def _age_s(at_ms: int | None) -> float | None:
    return max(0.0, time.time() - at_ms / 1000) if at_ms else None
