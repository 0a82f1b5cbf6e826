"""Sync as the status model has it: by what a node says of its peers, and by what stands in a database."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tailrace.observe.model import Health, Kind, Lag, Overview, Part, Wrong

if TYPE_CHECKING:
    from tailrace.sync.room import Held
    from tailrace.sync.store import EntityStatus, SyncStore

_STATES: Final = {"waiting": Health.GOOD, "syncing": Health.GOOD}
_FIGURES: Final = {"rounds": "rounds", "rows fetched": "fetched", "rows sent": "sent", "rows refused": "refused"}
_LATELY_S: Final = 300.0
"""A node that calls was here within this time, or is away."""


def sync_parts(told: Mapping[str, Any] | None) -> Iterator[Part]:
    """The node's own part in sync, and the nodes with which tables are synced."""
    if told is None:
        return
    if (own := Wrong.of(told["error"])) is not None:
        yield Part(Kind.SYNC, f"node {told['node']}", told["url"] or "", "its database is away", Health.BAD, wrong=own)
    known = {each["node"]: each for each in told["known"] or ()}
    for each in told["peers"]:
        standing = known.pop(each["node"], None)
        yield _called(each, None if standing is None else Lag(standing["waiting"], None, None))
    for each in known.values():
        yield _known(each["node"], each["name"], calls_us=each["calls_us"], seen_ms=each["seen_ms"], of=each["waiting"])


def overview_of_sync(file: str, store: SyncStore) -> Overview:
    """What stands in the database that a file names."""
    found = store.status()
    nodes = [
        _with_held(
            _known(str(each.node), each.name, calls_us=each.calls_us, seen_ms=each.seen_ms, of=each.waiting),
            found.held.get(each.node),
            is_full=each.node in found.full,
        )
        for each in store.standings()
    ]
    quarantine = {f"in quarantine, {kind}": count for kind, count in found.quarantine.items()}
    return Overview(
        name=store.database.place,
        what="sync",
        at_s=time.time(),
        is_running=None,
        runs_as=f"node {found.node}, by what stands in its database",
        parts=(*map(_table, found.entities), *nodes),
        wrong=tuple(not_declared(file, table) for table in store.not_declared()),
        more={"changes not looked at yet": found.changes, **quarantine},
    )


def not_declared(file: str, table: str) -> Wrong:
    """What is wrong with a table that is not in the file any more."""
    what = f"{table} is installed too, and not in this file, so its changes only pile up"
    return Wrong("sync.not_declared", what, f"tailrace sync uninstall {file} --table {table}")


def _called(told: Mapping[str, Any], lag: Lag | None) -> Part:
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
        lag=lag,
        moved=told["fetched"] + told["sent"],
        seen_s_ago=_age_s(told["last_success_ms"]),
        wrong=wrong,
        more={name: told[key] for name, key in _FIGURES.items()},
    )


def _known(node: str, name: str | None, *, calls_us: bool, seen_ms: int, of: int) -> Part:
    """A node that is known in the database."""
    seen_s_ago = _age_s(seen_ms)
    is_here = seen_s_ago is not None and seen_s_ago < _LATELY_S
    return Part(
        Kind.SYNC,
        name or f"node {node}",
        "calls this node" if calls_us else "is called",
        "here lately" if is_here else "never here" if seen_s_ago is None else "away",
        Health.GOOD if is_here else Health.WAITING,
        lag=Lag(of, None, None),
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
    more = {"rows": found.rows, "deleted": found.tombstones}
    return Part(
        Kind.TABLE,
        found.table,
        f"tableId {found.table_id}",
        "synced",
        Health.GOOD,
        lag=Lag(waiting, None, None),
        more=more,
    )


def _age_s(at_ms: int | None) -> float | None:
    return max(0.0, time.time() - at_ms / 1000) if at_ms else None
