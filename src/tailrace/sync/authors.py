"""Authors: whose versions a node may send. There are no signatures, and whoever passes on rows of others says who made
them; what can be known is what this node itself has made, and that a device has nothing to pass on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tailrace.sync import counts
from tailrace.sync.entity import Authors, Deletes, Rule
from tailrace.sync.exchange import Key
from tailrace.sync.incoming import Here, Incoming, Reception

NOBODY: Final = 0
"""Who made rows that were there before sync."""


def are_known(reception: Reception, times: Sequence[int], nodes: Sequence[int]) -> bool:
    """Whether nothing has to be looked at more closely."""
    makers = set(nodes)
    if reception.authors is Authors.OWN and makers - {reception.sender, NOBODY}:
        return False
    if reception.oneself not in makers or not _knows_its_own(reception):
        return True
    until_ms = counts.own_until_ms(reception.link)
    oneself = reception.oneself
    return all(time <= until_ms for time, node in zip(times, nodes, strict=True) if node == oneself)


def claimed(reception: Reception, rows: Sequence[Incoming], before: Mapping[Key, Here]) -> dict[Key, str]:
    """Newer versions that this node should have made, and has not; and why they are left where they are.

    Its own come from others when its database was set back, so they are not refused for good.
    """
    mine = [row for row in rows if row.node == reception.oneself and _is_news(row, before)]
    if not mine or not _knows_its_own(reception):
        return {}
    until_ms = counts.own_until_ms(reception.link)
    why = "it says that the node made it which it is sent to, and which does not know it; if the database there was set"
    why += " back to an older copy: tailrace sync resync FILE.yml at that node"
    return {row.key: why for row in mine if row.time > until_ms}


def foreign(reception: Reception, rows: Sequence[Incoming], before: Mapping[Key, Here]) -> dict[Key, str]:
    """Newer versions that their sender may not send, since others have made them; and why."""
    if reception.authors is not Authors.OWN:
        return {}
    allowed = {reception.sender, NOBODY}
    return {
        row.key: f"node {row.node} made it, and those who call may send only what is their own (authors: own)"
        for row in rows
        if row.node not in allowed and _is_news(row, before)
    }


def _is_news(row: Incoming, before: Mapping[Key, Here]) -> bool:
    here = before.get(row.key)
    return here is None or here.stamp < row.stamp


def _knows_its_own(reception: Reception) -> bool:
    """Whether a newer version of a row is never replaced by an older one here, and none is forgotten."""
    entity = reception.shape.entity
    return entity.deletes is Deletes.REPLICATE and entity.conflict is Rule.NEWER
