"""The census: which queues a site has, and how much waits in them for whom."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.log.consumers import Consumers
from tailrace.log.segment import Segment
from tailrace.log.view import LogView
from tailrace.message import Offset
from tailrace.queues.discovery import parse_listener
from tailrace.queues.names import LOG_ENTRIES, SNAPSHOTS, parse_receive_queue, sites_of


@dataclass(frozen=True, slots=True)
class Waiting:
    """What one listener has not answered."""

    listener: str
    messages: int
    oldest_age_s: float
    """How long ago the first of them was sent; 0 when there is none."""


@dataclass(frozen=True, slots=True)
class ReceiveQueue:
    """What has come for a client from a source."""

    name: str
    client: str
    source: str
    messages: int
    """In the log, answered or not."""
    waiting: list[Waiting]


@dataclass(frozen=True, slots=True)
class SendQueue:
    """What is to be sent."""

    name: str
    messages: int
    by_destination: dict[str, int]
    """In the log, sent or not. One message may be for many."""


@dataclass(frozen=True, slots=True)
class Census:
    """All queues of a site."""

    received: list[ReceiveQueue]
    sending: list[SendQueue]


def take_census(directory: str) -> Census:
    """Look at the log of a site; changes nothing."""
    consumers = Consumers(directory)
    view = consumers.view
    messages: dict[str, int] = {}
    for _, found in view.all_contents():
        for namespace, presence in found.namespaces.items():
            messages[namespace] = messages.get(namespace, 0) + presence.messages
    listeners = [(parse_listener(consumer.name), consumer) for consumer in consumers.all()]
    received = []
    for name, count in sorted(messages.items()):
        if (parsed := parse_receive_queue(name)) is not None:
            waiting = [
                _waiting(view, name, listener[1], consumer.positions.through(name), consumers.clock())
                for listener, consumer in listeners
                if listener is not None and listener[0] == parsed[0]
            ]
            received.append(ReceiveQueue(name, *parsed, count, waiting))
    sending = [
        SendQueue(name, messages[name], _by_destination(view, name))
        for name in (LOG_ENTRIES, SNAPSHOTS)
        if name in messages
    ]
    return Census(received, sending)


def _waiting(view: LogView, queue: str, listener: str, position: int, now_s: float) -> Waiting:
    """Segments that are wholly ahead are counted by their contents, and only one is walked."""
    count = 0
    first: int | None = None
    for base, found in view.all_contents():
        presence = found.namespaces.get(queue)
        if presence is None or presence.last <= position:
            continue
        if presence.first > position:
            count += presence.messages
            first = presence.first if first is None else first
            continue
        for head in view.heads(Offset(max(position + 1, base))):
            if head.offset >= found.end:
                break
            if head.namespace == queue and not head.is_hole:
                count += min(head.messages, head.end - position - 1)
                first = max(head.offset, position + 1) if first is None else first
    sent_s = now_s if first is None else view.find(Offset(first)).head.timestamp / 1e6
    return Waiting(listener, count, max(0.0, now_s - sent_s))


def _by_destination(view: LogView, queue: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for base, contents in view.all_contents():
        if queue not in contents.namespaces:
            continue
        with Segment(view.directory, base) as segment:
            for tag, positions in contents.destinations.items():
                for site in sites_of((tag,)):
                    heads = (segment.head_at(position).head for position in positions)
                    count = sum(head.messages for head in heads if head.namespace == queue)
                    if count:
                        found[site] = found.get(site, 0) + count
    return dict(sorted(found.items()))
