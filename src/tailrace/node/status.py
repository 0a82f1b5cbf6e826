"""How a node is doing, as it says itself in a file beside its log, about once a second."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tailrace.errors import Place, TailraceError
from tailrace.log.lock import WRITER_LOCK_NAME, holder_of
from tailrace.message import now

if TYPE_CHECKING:
    from tailrace.node.node import Node
    from tailrace.node.peers import Peer
    from tailrace.relay.applier import Applier
    from tailrace.relay.vclock import Vclock

NAME: Final = "status.json"


def write_status(status: dict[str, Any], directory: str) -> None:
    """Say how a node is doing."""
    leave(status, os.path.join(directory, NAME))


def leave(told: object, path: str) -> None:
    """Say something in a file, all of it at once. Nobody depends on it, so it need not survive a power cut."""
    draft = f"{path}.new"
    with open(draft, "w", encoding="utf-8") as stream:
        json.dump(told, stream)
    os.replace(draft, path)


def told(node: Node) -> dict[str, Any]:
    """Everything there is to know, as plain JSON."""
    return {
        "at_us": now(),
        "node": str(node.identity.node),
        "cluster": node.identity.cluster,
        "is_anonymous": node.identity.is_anonymous,
        "vclock": node.vclock.encode(),
        "port": node.port,
        "term": node.leader[0],
        "leader": str(node.leader[1]) if node.leader[1] else None,
        "read_only": node.why_read_only,
        "store_error": None if node.store_error is None else node.store_error.encode(),
        "sources": {applier.source.name: _source(applier, node.vclock) for applier in node.appliers},
        "peers": [_peer(peer) for peer in node.peers()],
        "held": {held.name: held.age_s for held in node.held()},
        "slow": node.slow,
        "queues": None if node.site is None else node.site.status(),
        "sync": None if node.sync is None else node.sync.status(),
    }


def _source(applier: Applier, ours: Vclock) -> dict[str, Any]:
    progress = applier.progress
    return {
        "state": progress.state.value,
        "error": None if progress.error is None else progress.error.encode(),
        "vclock": progress.source_clock.encode(),
        "behind": _behind(applier.source.wanted(progress.source_clock), ours) if progress.seen_s else None,
        "behind_bytes": progress.behind_bytes,
        "behind_s": progress.behind_s,
        "lag_s": progress.lag_s,
        "age_s": time.monotonic() - progress.seen_s if progress.seen_s else None,
    }


def _peer(peer: Peer) -> dict[str, Any]:
    return {
        "node": str(peer.node),
        "state": peer.state,
        "is_following": peer.is_following,
        "vclock": None if peer.acknowledged is None else peer.acknowledged.encode(),
        "behind": peer.lag.messages,
        "behind_bytes": peer.lag.bytes,
        "behind_s": peer.lag.seconds,
        "age_s": peer.age_s,
        "lost": peer.lost,
        "is_anonymous": peer.is_anonymous,
    }


def read_status(directory: str) -> dict[str, Any]:
    """What a node last said, and whether it still runs (`is_running`)."""
    path = os.path.join(directory, NAME)
    try:
        with open(path, encoding="utf-8") as stream:
            found: dict[str, Any] = json.load(stream)
    except FileNotFoundError:
        what = f"no node has ever run in {directory}"
        raise TailraceError("input.invalid", what, hint="tailrace serve NODE.yml") from None
    except ValueError as error:
        what = f"what the node said cannot be read: {error}"
        raise TailraceError("log.corrupt", what, place=Place(path), hint="look again in a moment") from error
    return {**found, "is_running": is_running(directory), "age_s": max(0.0, (now() - found["at_us"]) / 1_000_000)}


def is_running(directory: str) -> bool:
    """Whether a node works with a data directory right now."""
    return holder_of(os.path.join(directory, "log", WRITER_LOCK_NAME)) is not None


def _behind(theirs: Mapping[Any, int], ours: Mapping[Any, int]) -> int:
    return sum(max(0, lsn - ours[origin]) for origin, lsn in theirs.items())
