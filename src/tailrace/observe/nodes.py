"""A node as the status model has it: by what it says of itself, and by its log."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tailrace.message import Micros, moment
from tailrace.observe.logs import LogLook, consumers_of, log_part, namespaces_of
from tailrace.observe.model import Figures, Health, Kind, Lag, Overview, Part, TreeNode, Wrong
from tailrace.observe.syncs import sync_parts
from tailrace.relay.applier import State as SourceState
from tailrace.relay.holds import anonymous_name
from tailrace.relay.subscription import PREFIX, consumer_name
from tailrace.units import show_seconds

if TYPE_CHECKING:
    from tailrace.log.stat import LogStat

_GOOD_SOURCE = {SourceState.FOLLOW, SourceState.SYNC}
_BAD_SOURCE = {SourceState.STOPPED}
_SLOW_CURE = "see that it runs and reaches this one; the log is kept for it until it is let go of"
_QUEUE_TROUBLED = 3
"""So many failures in a row are more than a passing cut."""
_SAME_S = 5.0
"""A source that has heard of its own within this time is as good as the top."""
_COPIES_MAX = 20
"""So many of those who copy a replica are named."""
SILENT_S = 10.0
"""A node says about every second how it is; one that runs and has not for so long hangs."""


def overview_of_node(
    name: str,
    log_look: LogLook,
    told: Mapping[str, Any],
    tree: Sequence[TreeNode] = (),
    tree_wrong: Wrong | None = None,
) -> Overview:
    """`told` is what the node last said (node/status.py), with whether it runs and how old that is.

    `tree_wrong` is what keeps it from telling of its topology.
    """
    log = log_look.stat()
    positions = {} if log is None else {consumer.name: consumer.position for consumer in log.consumers}
    parts = [
        *_sources(told),
        *_peers(told, positions),
        *_slow(told),
        *_store(told),
        *_queues(told),
        *sync_parts(told.get("sync")),
    ]
    leads = "itself" if told["leader"] == told["node"] else told["leader"]
    clock = ", ".join(f"{origin}: {lsn}" for origin, lsn in told["vclock"].items())
    more = {
        "leader": leads,
        "term": told["term"] if leads else None,
        "anonymous": told["is_anonymous"],
        "clock": f"{{{clock}}}",
    }
    outboxes = map(Wrong.of, (told["queues"] or {}).get("outbox_errors", ()))
    wrong = tuple(filter(None, (tree_wrong, *outboxes)))
    peers = {name for name in positions if name.startswith(PREFIX)}
    as_what = f"node {told['node']} of cluster {told['cluster'] or 'none yet'}"
    return _overview(name, "node", as_what, told, parts, log, wrong=wrong, without=peers, tree=tuple(tree), more=more)


def overview_of_replica(name: str, log_look: LogLook, told: Mapping[str, Any]) -> Overview:
    """The same for a replica, which copies a log."""
    store = told["store"]
    kept = () if store is None else (_kept_store(store, told["next_offset"], log_look),)
    parts = [_replica(told, log_look), *_slow(told), *kept]
    wrong = tuple(Wrong("topology.alarm", str(text)) for text in told["alarms"] or ())
    as_what = f"replica of {told['source'] or 'nobody yet'}"
    more = {"generation": told["generation"]}
    return _overview(name, "replica", as_what, told, parts, log_look.stat(), wrong=wrong, more=more)


def _overview(
    name: str,
    what: str,
    as_what: str,
    told: Mapping[str, Any],
    parts: Sequence[Part],
    log: LogStat | None,
    *,
    wrong: tuple[Wrong, ...],
    more: Figures,
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
        parts=(*(aged if is_running else map(Part.away, aged)), *consumers),
        tree=tree,
        wrong=wrong,
        more=more,
    )


def _aged(part: Part, age_s: float) -> Part:
    """Sync says when it was, the others how long ago."""
    if part.seen_s_ago is None or part.kind is Kind.SYNC:
        return part
    return replace(part, seen_s_ago=part.seen_s_ago + age_s)


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
            more={"age of the last when it came": None if each["lag_s"] is None else f"{each['lag_s']:.3f} s"},
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
        wrong = Wrong("topology.slow", f"the copy was not heard of for {show_seconds(age_s)}", _SLOW_CURE)
        yield Part(Kind.REPLICA, name, "", "slow", Health.TROUBLED, seen_s_ago=age_s, wrong=wrong)


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
            more=_session_figures(each),
        )
    for each in queues["received"]:
        staged = each["staged"]
        state = "consistent" if each["is_consistent"] else "nothing came yet"
        if staged is not None:
            state = f"snapshot comes, {staged['messages']} messages so far"
        where = f"{each['client']} ← {each['source']}"
        yield Part(Kind.RECEIVED, where, each["queue"], state, Health.GOOD, each["position"])
    yield from map(_snapshot, queues["requests"])


def _session_figures(told: Mapping[str, Any]) -> Figures:
    at_us = told["completed_us"]
    return {
        "snapshot": told["snapshot"],
        "forced": told["is_forced"] and told["state"] == "snapshot",
        "messages behind the snapshot": told["following_entries"],
        "snapshot in place since": None if at_us is None else f"{moment(Micros(at_us)):%Y-%m-%d %H:%M:%SZ}",
        "messages not sent because it was full": told["shed"],
        "removed before": told["lost_before"],
        "failures in a row": told["failures"],
    }


def _snapshot(told: Mapping[str, Any]) -> Part:
    total = "" if told["total"] is None else f" of {told['total']}"
    who = told["claimed_by"]
    if told["is_done"]:
        state, health = f"supplied, {told['supplied']}{total}", Health.GOOD
    elif who is None:
        state, health = "nobody supplies it now", Health.WAITING
    else:
        state, health = f"{who} supplies it, {told['supplied']}{total} so far", Health.GOOD
    wrong = None
    if told["error"]:
        what = f"{told['failures']} attempts to supply it failed: {told['error']}"
        wrong, health = Wrong("queue.snapshot", what, "mend the program that supplies it"), Health.TROUBLED
    name = f"{told['client']} for {', '.join(told['sites'])}"
    return Part(Kind.SNAPSHOT, name, f"request {told['request']}", state, health, wrong=wrong)


def _replica(told: Mapping[str, Any], log_look: LogLook) -> Part:
    """What it has not got is younger than the last that it has, whose age is the most that it can be behind."""
    wrong = Wrong.of(told["error"])
    behind, next_offset = None, told["next_offset"]
    if told["source_offset"] is not None and next_offset is not None:
        messages = max(0, told["source_offset"] - next_offset)
        seconds = log_look.age_s(next_offset - 1) if messages and next_offset else None
        behind = Lag(messages, told["behind_bytes"], seconds if messages else 0.0)
    health = Health.TROUBLED if wrong is not None else Health.GOOD if told["source"] else Health.WAITING
    return Part(
        Kind.REPLICA,
        told["name"],
        told["source"] or "no source",
        told["state"],
        health,
        position=None if next_offset is None else next_offset - 1,
        lag=behind,
        seen_s_ago=told["heard_s"],
        wrong=wrong,
        more={
            "copied bytes": told["copied_bytes"],
            "sent bytes": told["sent_bytes"],
            "thrown away bytes": told["thrown_bytes"],
            "copied by": ", ".join(sorted(told["copies"])[:_COPIES_MAX]),
            "copies": len(told["copies"]),
            "top of all heard of": _top(told),
        },
    )


def _top(told: Mapping[str, Any]) -> str | None:
    """When the top of all was heard of, where the source has not heard of it for longer than that is usual."""
    top_s = told["top_s"] or 0.0
    return f"{show_seconds(top_s)} ago" if top_s > _SAME_S + (told["heard_s"] or 0.0) else None


def _kept_store(store: Mapping[str, Any], received: int | None, log_look: LogLook) -> Part:
    wrong = Wrong.of(store["error"])
    health = Health.BAD if wrong is not None else Health.GOOD
    more = {
        "late": f"{store['wait_s']:g} s" if store["wait_s"] else None,
        "may apply before": store["allowed"],
        "ignored": ", ".join(store["ignored"] or ()),
        "coming back from the log": store["backfilled"],
    }
    applied = store["applied"]
    if applied is None:
        return Part(Kind.STORE, "store", "", "not filled yet", health, wrong=wrong, more=more)
    lag = None
    if received is not None:
        messages = max(0, received - applied)
        age_s = log_look.age_s(applied) if messages else 0.0
        late_s = store["wait_s"] or 0.0  # it is meant to be as late as this
        lag = Lag(messages, None, None if age_s is None else max(0.0, age_s - late_s))
    return Part(Kind.STORE, "store", "", "applies", health, applied - 1, lag, wrong=wrong, more=more)
