"""Another node, asked over HTTP: Door's endpoints as a peer of a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeVar

import orjson

from tailrace.errors import TailraceError
from tailrace.sync import ackform, arrowform
from tailrace.sync.exchange import Ack, Acks, Key, Receipt, RowBatch, Tracker
from tailrace.sync.httplink import JSON, Answer, HttpLink
from tailrace.sync.install import KEY_NODE_MAX
from tailrace.sync.shape import Shape
from tailrace.sync.wire import Wire

Read = TypeVar("Read")
_NODE: Final = "/replication/node"


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


class HttpPeer:
    """A node that has said who it is."""

    def __init__(self, link: HttpLink, shape: Callable[[int], Shape], greeting: Greeting) -> None:
        self.link = link
        self.greeting = greeting
        self._shape = shape
        self._has_arrow = arrowform.MEDIA_TYPE in greeting.formats

    @classmethod
    def greet(cls, link: HttpLink, shape: Callable[[int], Shape]) -> HttpPeer:
        """Ask a node who it is. If it lets nobody in whom it does not know, it hears the word of `enrol`."""
        try:
            answer = link.ask("GET", _NODE)
        except TailraceError as error:
            if error.code not in ("sync.no_rights", "sync.not_admitted") or link.address.enrol is None:
                raise
            answer = link.ask("GET", _NODE, headers={"door-enrol": link.address.enrol})
        return cls(link, shape, _greeting(link, answer))

    @property
    def node_id(self) -> int:
        return self.greeting.node_id

    @property
    def tables(self) -> Mapping[int, str] | None:
        return self.greeting.tables

    def pending_tables(self) -> tuple[list[int], list[int]]:
        said = self._json(self.link.ask("GET", "/replication/pending"))
        if not isinstance(said, dict) or not all(_is_list_of_numbers(said.get(name)) for name in ("tables", "empty")):
            raise self.link.bad_answer("did not say of which tables it has something")
        return said["tables"], said["empty"]

    def pending_trackers(self, table_id: int, after: Key | None, limit: int) -> list[Tracker]:
        answer = self.link.ask("GET", "/replication/pendingtrackers", parameters=_page(table_id, after, limit))
        return self._read(lambda: self._wire(table_id).read_trackers(self._json(answer)))

    def mark_processed(self, table_id: int, acks: Sequence[Ack]) -> None:
        path = "/replication/markReplicateTrackersAsProcessed"
        if acks and arrowform.MEDIA_TYPE in self.greeting.ack_formats:
            body = ackform.as_arrow(Acks.of(acks))
            self.link.ask("PUT", path, parameters={"tableId": table_id}, body=body, kind=arrowform.MEDIA_TYPE)
        else:
            self._tell("PUT", path, table_id, self._wire(table_id).acks(acks))

    def already_received(self, table_id: int, trackers: Sequence[Tracker]) -> list[Tracker]:
        wire = self._wire(table_id)
        path = "/replication/checkForEntitiesAlreadyReceived"
        answer = self._tell("POST", path, table_id, wire.trackers(trackers))
        return self._read(lambda: wire.read_trackers(self._json(answer)))

    def pending_rows(self, table_id: int, after: Key | None, limit: int) -> RowBatch:
        accept = f"{arrowform.MEDIA_TYPE}, {JSON};q=0.5" if self._has_arrow else JSON
        path = "/replication/pendingReplication"
        answer = self.link.ask("GET", path, parameters=_page(table_id, after, limit), accept=accept)
        return self._read(lambda: self._rows(self._wire(table_id), answer))

    def receive(self, table_id: int, batch: RowBatch) -> Receipt:
        wire = self._wire(table_id)
        kind = arrowform.MEDIA_TYPE if self._has_arrow else JSON
        body = arrowform.as_arrow(batch) if self._has_arrow else orjson.dumps(wire.rows(batch, self.node_id))
        path = "/replication/receive"
        also = (HTTPStatus.INSUFFICIENT_STORAGE,)  # a receipt comes with it, which says for what
        answer = self.link.ask("PUT", path, parameters={"tableId": table_id}, body=body, kind=kind, also=also)
        return self._read(lambda: wire.read_receipt(self._json(answer)))

    def _wire(self, table_id: int) -> Wire:
        return Wire(self._shape(table_id))

    def _tell(self, method: str, path: str, table_id: int, body: Any) -> Answer:
        return self.link.ask(method, path, parameters={"tableId": table_id}, body=orjson.dumps(body))

    def _rows(self, wire: Wire, answer: Answer) -> RowBatch:
        if answer.kind == arrowform.MEDIA_TYPE:
            return arrowform.read_arrow(wire, answer.body)
        found = wire.read_rows(self._json(answer))
        if len(found) > 1:  # they would not be in the order of their keys any more
            raise self.link.bad_answer("sent rows that do not have the same columns")
        return found[0] if found else RowBatch((), [])

    def _json(self, answer: Answer) -> Any:
        try:
            return orjson.loads(answer.body)
        except orjson.JSONDecodeError:
            raise self.link.bad_answer(f"answered {answer.kind or 'something'} that is no JSON") from None

    def _read(self, read: Callable[[], Read]) -> Read:
        """What is malformed here is the other node's answer, and not what this one was asked."""
        try:
            return read()
        except TailraceError as error:
            if error.code not in ("sync.malformed", "sync.too_large"):
                raise
            raise self.link.bad_answer(f"answered otherwise than documented: {error.what}") from error


def _greeting(link: HttpLink, answer: Answer) -> Greeting:
    try:
        said = orjson.loads(answer.body)
        node, time_ms, key_node = said["nodeId"], said["time"], said.get("keyNode")
        formats, ack_formats = (frozenset(map(str, said.get(name, [JSON]))) for name in ("formats", "ackFormats"))
        told = said.get("tables")
        tables = None if told is None else {int(number): str(each["table"]) for number, each in told.items()}
    except (orjson.JSONDecodeError, TypeError, KeyError, AttributeError, ValueError):
        raise link.bad_answer("did not say who it is") from None
    is_key_node = key_node is None or (type(key_node) is int and 0 <= key_node <= KEY_NODE_MAX)
    if type(node) is not int or type(time_ms) is not int or not is_key_node:
        raise link.bad_answer("said something about itself that cannot be")
    return Greeting(node, time_ms, key_node, formats, tables, ack_formats)


def _page(table_id: int, after: Key | None, limit: int) -> dict[str, str | int]:
    page: dict[str, str | int] = {"tableId": table_id, "limit": limit}
    if after is not None:
        page["after"] = orjson.dumps(after[0] if len(after) == 1 else list(after)).decode()
    return page


def _is_list_of_numbers(value: Any) -> bool:
    return type(value) is list and all(type(each) is int for each in value)
