"""Vector clocks: how far the changes of each instance of a replica set are known.

Component 0 counts what an instance keeps to itself; it is never sent, and no comparison looks at it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.adaptor.tarantool.iproto import malformed

Vclock = dict[int, int]


def read_vclock(told: Any) -> Vclock:
    """As a server tells it, or as it comes back from JSON."""
    try:
        return {int(id_): int(lsn) for id_, lsn in dict(told).items() if int(id_) != 0 and int(lsn) > 0}
    except (TypeError, ValueError):
        raise malformed("a vclock is none") from None


def plain(vclock: Mapping[int, int]) -> dict[str, int]:
    """As JSON has it."""
    return {str(id_): vclock[id_] for id_ in sorted(vclock)}


def covers(one: Mapping[int, int], other: Mapping[int, int]) -> bool:
    """Whether everything that `other` has happened before `one`, or is the same."""
    return all(one.get(id_, 0) >= lsn for id_, lsn in other.items())


def text(vclock: Mapping[int, int]) -> str:
    return "{" + ", ".join(f"{id_}: {lsn}" for id_, lsn in sorted(vclock.items())) + "}"
