"""A node as the status model has it: by what it says of itself, and by its log."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tailrace.observe.logs import LogLook, consumers_of, log_part, namespaces_of
from tailrace.observe.model import Health, Kind, Lag, Overview, Part, TreeNode, Wrong
from tailrace.relay.applier import State as SourceState
from tailrace.relay.holds import anonymous_name
from tailrace.relay.subscription import PREFIX, consumer_name
from tailrace.topology.answers import Row
from tailrace.topology.drawing import Told
from tailrace.units import show_seconds

if TYPE_CHECKING:
    from tailrace.log.stat import LogStat

_GOOD_SOURCE = {SourceState.FOLLOW, SourceState.SYNC}
_BAD_SOURCE = {SourceState.STOPPED}
_SYNC = {"waiting": Health.GOOD, "syncing": Health.GOOD}
_SYNC_FIGURES = {"rounds": "rounds", "rows fetched": "fetched", "rows sent": "sent", "rows refused": "refused"}
_QUEUE_TROUBLED = 3
"""So many failures in a row are more than a passing cut."""
SILENT_S = 10.0
"""A node says about every second how it is; one that runs and has not for so long hangs."""
TREE_S = 5.0
"""So often a topology is looked at: it may have thousands of nodes, which are heard of every few seconds."""


class TreeLook:
    """A topology that is looked at again and again."""

    def __init__(self, ask: Callable[[], Sequence[Row]]) -> None:
        self._ask = ask
        self._asked_s = -TREE_S
        self._found: tuple[TreeNode, ...] = ()

    def read(self) -> tuple[TreeNode, ...]:
        """The same tuple for a while."""
        if time.monotonic() - self._asked_s >= TREE_S:
            self._found = tuple(tree_of(self._ask()))
            self._asked_s = time.monotonic()
        return self._found


def overview_of_node(name: str, log_look: LogLook, told: Mapping[str, Any], tree: Sequence[TreeNode] = ()) -> Overview:
    """`told` is what the node last said (node/status.py), with whether it runs and how old that is."""
    log = log_look.stat()
    positions = {} if log is None else {consumer.name: consumer.position for consumer in log.consumers}
    parts = [*_sources(told), *_peers(told, positions), *_slow(told), *_store(told), *_queues(told), *_syncs(told)]
    wrong = tuple(filter(None, map(Wrong.of, (told["queues"] or {}).get("outbox_errors", ()))))
    peers = {name for name in positions if name.startswith(PREFIX)}
    as_what = f"node {told['node']} of cluster {told['cluster'] or 'none yet'}"
    return _overview(name, "node", as_what, told, parts, log, wrong=wrong, without=peers, tree=tuple(tree))


def overview_of_replica(name: str, log_look: LogLook, told: Mapping[str, Any]) -> Overview:
    """The same for a replica, which copies a log."""
    store = told["store"]
    parts = [_replica(told), *_slow(told), *(() if store is None else (_kept_store(store),))]
    wrong = tuple(Wrong("topology.alarm", str(text)) for text in told["alarms"] or ())
    return _overview(
        name, "replica", f"replica of {told['source'] or 'nobody yet'}", told, parts, log_look.stat(), wrong=wrong
    )


def _overview(
    name: str,
    what: str,
    as_what: str,
    told: Mapping[str, Any],
    parts: Sequence[Part],
    log: LogStat | None,
    *,
    wrong: tuple[Wrong, ...],
    without: Collection[str] = (),
    tree: tuple[TreeNode, ...] = (),
) -> Overview:
    """What was told is as old as it is, and so is everything in it."""
    is_running, age_s = bool(told["is_running"]), float(told["age_s"])
    aged = [_aged(part, age_s) for part in parts]
    if is_running and age_s > SILENT_S:
        text = f"the {what} runs, but has not said for {show_seconds(age_s)} how it is: all this is as old"
        wrong = (Wrong("node.silent", text, "look into its log; if it hangs, end it and start it again", age_s), *wrong)
    consumers = () if log is None else tuple(consumers_of(log, without))
    return Overview(
        name=name,
        what=what,
        at_s=time.time(),
        is_running=is_running,
        runs_as=as_what,
        told_s_ago=age_s,
        log=None if log is None else log_part(log),
        namespaces=() if log is None else tuple(namespaces_of(log)),
        parts=(*(aged if is_running else map(_away, aged)), *consumers),
        tree=tree,
        wrong=wrong,
    )


def tree_of(rows: Sequence[Row]) -> Iterator[TreeNode]:
    """The nodes of a topology, those at the top first."""
    told = Told(rows)
    known = {row.site for row in rows}
    for row in sorted(rows, key=lambda row: (row.tier is None, row.tier or 0, row.site)):
        health = Health.BAD if row.is_orphan else Health.WAITING if row.is_stopped else Health.GOOD
        yield TreeNode(
            str(row.site),
            str(row.source) if row.source in known else None,
            row.site.database,
            row.tier,
            "source" if row.is_source else str(row.state),
            health,
            told.of(row),
            row.age_s,
        )


def _aged(part: Part, age_s: float) -> Part:
    """Sync says when it was, the others how long ago."""
    if part.seen_s_ago is None or part.kind is Kind.SYNC:
        return part
    return replace(part, seen_s_ago=part.seen_s_ago + age_s)


def _away(part: Part) -> Part:
    """What was told by a node that does not run any more."""
    health = Health.WAITING if part.health is Health.GOOD else part.health
    return replace(part, state=f"not running, was {part.state}", health=health)


def _sources(told: Mapping[str, Any]) -> Iterator[Part]:
    for name, each in told["sources"].items():
        state = SourceState(each["state"])
        bad = Health.BAD if state in _BAD_SOURCE else Health.TROUBLED if each["error"] else Health.WAITING
        lag = None
        if each["behind"] is not None:
            lag = Lag(each["behind"], each["behind_bytes"], each["behind_s"])
        yield Part(
            Kind.SOURCE,
            name,
            "",
            str(state),
            Health.GOOD if state in _GOOD_SOURCE else bad,
            lag=lag,
            seen_s_ago=each["age_s"],
            wrong=Wrong.of(each["error"]),
        )


def _peers(told: Mapping[str, Any], positions: Mapping[str, int]) -> Iterator[Part]:
    for each in told["peers"]:
        node = int(each["node"])
        wrong = None
        if each["lost"] is not None:
            wrong = Wrong("consumer.invalidated", each["lost"], "it takes a new snapshot when it comes back")
        health = Health.BAD if wrong is not None else Health.GOOD if each["is_following"] else Health.WAITING
        yield Part(
            Kind.PEER,
            each["node"],
            "anonymous" if each["is_anonymous"] else "",
            each["state"],
            health,
            positions.get(anonymous_name(node) if each["is_anonymous"] else consumer_name(node)),
            Lag(each["behind"], each["behind_bytes"], each["behind_s"]),
            seen_s_ago=each["age_s"],
            wrong=wrong,
        )


def _slow(told: Mapping[str, Any]) -> Iterator[Part]:
    """Those that copy from here and are not heard of."""
    for name, age_s in told["slow"].items():
        yield Part(Kind.REPLICA, name, "", "slow", Health.TROUBLED, seen_s_ago=age_s)


def _store(told: Mapping[str, Any]) -> Iterator[Part]:
    wrong = Wrong.of(told["store_error"])
    read_only = told["read_only"]
    if wrong is not None or read_only is not None:
        state = "not served" if wrong is not None else f"read-only: {read_only}"
        yield Part(Kind.STORE, "store", "", state, Health.BAD if wrong else Health.WAITING, wrong=wrong)


def _queues(told: Mapping[str, Any]) -> Iterator[Part]:
    queues = told["queues"]
    if queues is None:
        return
    for each in queues["sessions"]:
        wrong = Wrong.of(each["error"])
        troubled = wrong is not None and each["failures"] >= _QUEUE_TROUBLED
        health = Health.TROUBLED if troubled else Health.WAITING if wrong is not None else Health.GOOD
        yield Part(
            Kind.QUEUE,
            f"{each['client']} → {each['sink']}",
            "",
            each["state"],
            health,
            each["position"],
            Lag(each["remaining_entries"], each["remaining_bytes"], each["lag_s"]),
            wrong=wrong,
            more={"snapshot": each["snapshot"], "shed": each["shed"], "failures in a row": each["failures"]},
        )
    for each in queues["received"]:
        staged = each["staged"]
        state = "consistent" if each["is_consistent"] else "nothing came yet"
        if staged is not None:
            state = f"snapshot comes, {staged['messages']} messages so far"
        where = f"{each['client']} ← {each['source']}"
        yield Part(Kind.RECEIVED, where, each["queue"], state, Health.GOOD, each["position"])


def _syncs(told: Mapping[str, Any]) -> Iterator[Part]:
    """The node's own part in sync, and the nodes with which tables are synced."""
    sync = told.get("sync")
    if sync is None:
        return
    if (own := Wrong.of(sync["error"])) is not None:
        yield Part(Kind.SYNC, f"node {sync['node']}", sync["url"] or "", "its database is away", Health.BAD, wrong=own)
    for each in sync["peers"]:
        wrong = Wrong.of(each["last_error"])
        health = Health.TROUBLED if wrong is not None else _SYNC.get(each["state"], Health.WAITING)
        if each["clock_warning"] is not None and wrong is None:
            wrong = Wrong("sync.clock", each["clock_warning"], "set the clocks of both nodes by NTP")
            health = Health.TROUBLED
        if each["warnings"] and wrong is None:
            wrong = Wrong("sync.left", "; ".join(each["warnings"]), "do what it says; the rows wait until then")
            health = Health.TROUBLED
        heard_ms = each["last_success_ms"]
        yield Part(
            Kind.SYNC,
            each["name"],
            each["url"],
            each["state"],
            health,
            seen_s_ago=None if heard_ms is None else max(0.0, time.time() - heard_ms / 1000),
            wrong=wrong,
            more={name: each[key] for name, key in _SYNC_FIGURES.items()},
        )


def _replica(told: Mapping[str, Any]) -> Part:
    wrong = Wrong.of(told["error"])
    behind = None
    if told["source_offset"] is not None and told["next_offset"] is not None:
        behind = Lag(max(0, told["source_offset"] - told["next_offset"]), told["behind_bytes"], None)
    health = Health.TROUBLED if wrong is not None else Health.GOOD if told["source"] else Health.WAITING
    return Part(
        Kind.REPLICA,
        told["name"],
        told["source"] or "no source",
        told["state"],
        health,
        position=None if told["next_offset"] is None else told["next_offset"] - 1,
        lag=behind,
        seen_s_ago=told["heard_s"],
        wrong=wrong,
        more={"bytes copied": told["copied_bytes"], "bytes sent": told["sent_bytes"], "copies": len(told["copies"])},
    )


def _kept_store(store: Mapping[str, Any]) -> Part:
    wrong = Wrong.of(store["error"])
    health = Health.BAD if wrong is not None else Health.GOOD
    more = {"may apply": store["allowed"], "waits": store["wait_s"], "ignored tables": len(store["ignored"] or ())}
    return Part(Kind.STORE, "store", "", "applies", health, position=store["applied"], wrong=wrong, more=more)
