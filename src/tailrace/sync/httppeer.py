"""Another node, asked over HTTP: Door's endpoints as a peer of a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final

import orjson

from tailrace.errors import TailraceError
from tailrace.limits import SYNC_TABLE_CHARACTERS_MAX, SYNC_TABLES_MAX, SYNC_TOLD_BYTES_MAX
from tailrace.sync import ackform, arrowform
from tailrace.sync.content import JSON, read_json, read_value
from tailrace.sync.counts import COUNT_MAX, Counts, header
from tailrace.sync.exchange import Ack, Acks, Key, Known, Part, Pending, Receipt, RowBatch, Tracker
from tailrace.sync.httplink import Answer, AnswerTooLarge, HttpLink
from tailrace.sync.install import KEY_NODE_MAX
from tailrace.sync.outgoing import formed
from tailrace.sync.shape import Shape
from tailrace.sync.wire import Wire

_NODE: Final = "/replication/node"
_FEWER: Final = 4


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a node says about itself."""

    node_id: int
    time_ms: int
    key_node: int | None
    """The number that it has kept free for keys that this node makes."""
    formats: frozenset[str]
    tables: Mapping[int, str] | None = None
    """The tables that it syncs; None when it does not say."""
    ack_formats: frozenset[str] = frozenset((JSON,))
    """How it can be told what was received; one that does not say knows JSON."""
    counts: Counts | None = None
    """What it has counted, and has heard of this node, before this meeting; None when it does not say."""


class HttpPeer:
    """A node that has said who it is."""

    def __init__(self, link: HttpLink, shape: Callable[[int], Shape], greeting: Greeting) -> None:
        self.link = link
        self.greeting = greeting
        self.warnings: list[str] = []
        """What was noticed when it was met; for people."""
        self._shape = shape
        self._has_arrow = arrowform.MEDIA_TYPE in greeting.formats

    @classmethod
    def greet(cls, link: HttpLink, shape: Callable[[int], Shape], count: int = 0) -> HttpPeer:
        """Ask a node who it is. If it lets nobody in whom it does not know, it hears the word of `enrol`. `count` is
        how often something was exchanged with it."""
        try:
            answer = link.ask("GET", _NODE, headers=header(count), bytes_max=SYNC_TOLD_BYTES_MAX)
        except TailraceError as error:
            if error.code not in ("sync.no_rights", "sync.not_admitted") or link.address.enrol is None:
                raise
            told = {"door-enrol": link.address.enrol, **header(count)}
            answer = link.ask("GET", _NODE, headers=told, bytes_max=SYNC_TOLD_BYTES_MAX)
        return cls(link, shape, _greeting(link, answer))

    @property
    def node_id(self) -> int:
        return self.greeting.node_id

    @property
    def tables(self) -> Mapping[int, str] | None:
        return self.greeting.tables

    def pending_tables(self) -> Pending:
        answer = self.link.ask("GET", "/replication/pending", bytes_max=SYNC_TOLD_BYTES_MAX)
        with self.link.reading():
            said = read_value(answer.body)
        if not isinstance(said, dict) or not all(
            _is_list_of_tables(said.get(name)) for name in {"tables", "empty"} | (said.keys() & {"deletions"})
        ):
            raise self.link.bad_answer("did not say of which tables it has something")
        gone = frozenset(said["deletions"]) if "deletions" in said else None
        return Pending(said["tables"], said["empty"], gone)

    def pending_trackers(self, table_id: int, after: Key | None, limit: int) -> list[Tracker]:
        answer = self.link.ask("GET", "/replication/pendingtrackers", parameters=_page(table_id, after, limit))
        with self.link.reading():
            return self._wire(table_id).read_trackers(read_json(answer.body))

    def mark_processed(self, table_id: int, acks: Sequence[Ack], count: int | None = None) -> None:
        path = "/replication/markReplicateTrackersAsProcessed"
        if acks and arrowform.MEDIA_TYPE in self.greeting.ack_formats:
            self._tell("PUT", path, table_id, ackform.as_arrow(Acks.of(acks)), count, arrowform.MEDIA_TYPE)
        else:
            self._tell("PUT", path, table_id, orjson.dumps(self._wire(table_id).acks(acks)), count)

    def already_received(self, table_id: int, trackers: Sequence[Tracker]) -> Known:
        wire = self._wire(table_id)
        path = "/replication/checkForEntitiesAlreadyReceived"
        answer = self._tell("POST", path, table_id, orjson.dumps(wire.trackers(trackers)))
        with self.link.reading():
            return Known(wire.read_trackers(read_json(answer.body)), answer.count)

    def pending_rows(self, table_id: int, after: Key | None, limit: int, part: Part = Part.ALL) -> RowBatch:
        """Of a node that says more than is read, fewer rows are asked for."""
        wanted = limit
        while True:  # what was too large is let go of before the next one comes
            try:
                found = self._pending_rows(_page(table_id, after, wanted, part), table_id)
            except AnswerTooLarge:
                if wanted == 1:
                    raise
                wanted = max(1, wanted // _FEWER)
            else:
                found.was_cut |= wanted < limit
                return found

    def _pending_rows(self, page: Mapping[str, str | int], table_id: int) -> RowBatch:
        accept = f"{arrowform.MEDIA_TYPE}, {JSON};q=0.5" if self._has_arrow else JSON
        path = "/replication/pendingReplication"
        answer = self.link.ask("GET", path, parameters=page, accept=accept)
        with self.link.reading():
            found = self._rows(self._wire(table_id), answer)
        found.was_cut, found.count = answer.has_more, answer.count
        return found

    def receive(self, table_id: int, batch: RowBatch) -> Receipt:
        wire = self._wire(table_id)
        kind = arrowform.MEDIA_TYPE if self._has_arrow else JSON
        body = formed(
            batch, arrowform.as_arrow if self._has_arrow else lambda rows: orjson.dumps(wire.rows(rows, self.node_id))
        )
        path = "/replication/receive"
        also = (HTTPStatus.INSUFFICIENT_STORAGE,)  # a receipt comes with it, which says for what
        answer = self.link.ask(
            "PUT", path, parameters={"tableId": table_id}, body=body, kind=kind, also=also, headers=header(batch.count)
        )
        with self.link.reading():
            return replace(wire.read_receipt(read_value(answer.body)), count=answer.count)

    def _wire(self, table_id: int) -> Wire:
        return Wire(self._shape(table_id))

    def _tell(
        self, method: str, path: str, table_id: int, body: bytes, count: int | None = None, kind: str = JSON
    ) -> Answer:
        of_table = {"tableId": table_id}
        return self.link.ask(method, path, parameters=of_table, body=body, kind=kind, headers=header(count))

    def _rows(self, wire: Wire, answer: Answer) -> RowBatch:
        if answer.kind == arrowform.MEDIA_TYPE:
            return arrowform.read_arrow(wire, answer.body)
        found = wire.read_rows(read_json(answer.body))
        if len(found) > 1:  # they would not be in the order of their keys any more
            raise self.link.bad_answer("sent rows that do not have the same columns")
        return found[0] if found else RowBatch((), [])


def _greeting(link: HttpLink, answer: Answer) -> Greeting:
    with link.reading():
        said = read_value(answer.body)
    try:
        node, time_ms, key_node = said["nodeId"], said["time"], said.get("keyNode")
        formats, ack_formats = (frozenset(map(str, said.get(name, [JSON]))) for name in ("formats", "ackFormats"))
        told = said.get("tables")
        tables = None if told is None else {int(number): str(each["table"]) for number, each in told.items()}
        counts = Counts(said["count"], said["heard"]) if "count" in said else None
    except (TypeError, KeyError, AttributeError, ValueError):
        raise link.bad_answer("did not say who it is") from None
    is_key_node = key_node is None or (type(key_node) is int and 0 <= key_node <= KEY_NODE_MAX)
    are_counts = counts is None or all(type(each) is int and 0 <= each <= COUNT_MAX for each in counts)
    if type(node) is not int or type(time_ms) is not int or not is_key_node or not are_counts:
        raise link.bad_answer("said something about itself that cannot be")
    if tables is not None:
        if len(tables) > SYNC_TABLES_MAX:
            raise link.bad_answer(f"said that it has more than {SYNC_TABLES_MAX} tables")
        tables = {number: name[:SYNC_TABLE_CHARACTERS_MAX] for number, name in tables.items()}
    return Greeting(node, time_ms, key_node, formats, tables, ack_formats, counts)


def _page(table_id: int, after: Key | None, limit: int, part: Part = Part.ALL) -> dict[str, str | int]:
    page: dict[str, str | int] = {"tableId": table_id, "limit": limit}
    if part is not Part.ALL:  # others than this project's nodes know nothing of it
        page["only"] = str(part)
    if after is not None:
        page["after"] = orjson.dumps(after[0] if len(after) == 1 else list(after)).decode()
    return page


def _is_list_of_tables(value: Any) -> bool:
    return type(value) is list and len(value) <= SYNC_TABLES_MAX and all(type(each) is int for each in value)
