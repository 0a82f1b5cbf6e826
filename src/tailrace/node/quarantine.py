"""Quarantine: messages in conflict, as they are kept for people, and what these have decided."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.errors import TailraceError
from tailrace.message import Offset
from tailrace.node.conflict import Clash, Conflict, Keep, Policy

if TYPE_CHECKING:
    from tailrace.deliver.messages import Messages
    from tailrace.node.contract import NodeWriter


class Undecided(Exception):
    """A conflict about which somebody must decide."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(conflict.key)
        self.conflict = conflict
        self.group = Offset(0)
        """Where the group begins that the message is in."""


def told(messages: Messages, clash: Clash, policy: Policy, keep: Keep | None) -> Conflict:
    """One of some messages with the row that it found."""
    times: Any = messages.rows.column("timestamp").view(pa.int64())
    return Conflict(
        namespace=messages.namespace,
        key=clash.key,
        left_key=clash.left_key,
        origin=str(messages.origin),
        lsn=messages.rows.column("lsn")[clash.at].as_py(),
        at_us=times[clash.at].as_py(),
        policy=policy,
        ours=clash.ours,
        theirs=clash.theirs,
        keep=keep,
        rival=clash.rival,
    )


def newer(clash: Clash) -> Keep:
    """Which row stays where the newer one does."""
    return Keep.THEIRS if clash.is_newer else Keep.OURS


def decided(writer: NodeWriter, conflict: Conflict) -> Keep | None:
    """What somebody has decided. Where nobody has, that may stop everything."""
    decision = writer.decision(conflict)
    if decision is None and conflict.policy is Policy.STOP:
        raise Undecided(replace(conflict, keep=None))
    return decision


def stopped(conflict: Conflict) -> TailraceError:
    """Nothing more is applied until somebody decides."""
    row = f"row {conflict.key} of {conflict.namespace}"
    message = f"message {conflict.lsn} of node {int(conflict.origin)}"
    what = f"{row} was changed here and by {message}"
    if conflict.rival:
        what = f"{row} cannot be written for {message}: row {conflict.rival} here has what must be unique"
    return TailraceError("relay.conflict", what, hint="tailrace conflict list, then tailrace conflict resolve")
