"""Routing queues: one payload to many sites, in order, exactly once into the queue at each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.queues.providing import Providing, SnapshotContext
    from tailrace.queues.sending import RoutingQueue
    from tailrace.queues.sent import Sent

__all__ = ["Providing", "RoutingQueue", "Sent", "SnapshotContext"]


def __getattr__(name: str) -> Any:
    """Imported late: who only wants the names of queues need not load what sends."""
    if name == "RoutingQueue":
        from tailrace.queues.sending import RoutingQueue

        return RoutingQueue
    if name == "Sent":
        from tailrace.queues.sent import Sent

        return Sent
    if name in ("Providing", "SnapshotContext"):
        from tailrace.queues import providing

        return getattr(providing, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
