"""The outbox: tables in an application's own database, in which it leaves what it sends, in its own transactions.

| table | |
| --- | --- |
| `LRQ_Send_LogEntries` | what applications send |
| `LRQ_Send_SnapSync` | what providers supply |
| `LRQ_Destinations` | where messages can be sent, and what is full; the site writes it |
| `LRQ_Requests` | the snapshots that are wanted; the site writes them, providers claim them |
| `LRQ_Outbox` | which outbox this is: positions in another one mean nothing here |
| `LRQ_Site` | whose it is: two sites that read it would each get a part |
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

from tailrace.errors import TailraceError
from tailrace.limits import MIB
from tailrace.log.batch import Batch
from tailrace.message import Micros
from tailrace.queues.claims import STAGED
from tailrace.queues.entries import Kind, Outgoing, outgoing_batches, snapshot_batches
from tailrace.queues.fullness import Fullness
from tailrace.queues.names import check_client, check_site
from tailrace.queues.staged import StagedPart

BATCH_BYTES: Final = 16 * MIB
"""About so much is read at once; a transaction that is larger is read as it is."""

SuppliedRow = tuple[int, str, str, int, bytes, str]
"""Of `LRQ_Send_SnapSync`: number, client, attempt, kind, payload; and the sites that get it."""
REFUSED: Final = """UPDATE LRQ_Requests SET attempt = NULL, claimed_at = NULL, claimed_by = NULL, done_at = NULL,
    failures = failures + 1, error = {value} WHERE attempt = {value}"""


@dataclass(frozen=True, slots=True)
class Owner:
    """The one site that reads an outbox, known by its log: another one may have the same name."""

    site: str
    log: str


@dataclass(frozen=True, slots=True)
class Position:
    """Up to where an outbox was read: row numbers in SQLite, transactions in PostgreSQL."""

    outbox: str
    entries: int = 0
    snapshots: int = 0

    def encode(self) -> list[str | int]:
        """The position as plain JSON."""
        return [self.outbox, self.entries, self.snapshots]

    @classmethod
    def decode(cls, told: Sequence[Any]) -> Self:
        """The inverse of `encode`."""
        outbox, entries, snapshots = told
        return cls(str(outbox), int(entries), int(snapshots))


@dataclass(frozen=True, slots=True)
class SnapshotRows:
    """Consecutive rows of one attempt to supply a snapshot."""

    client: str
    attempt: str
    sites: tuple[str, ...]
    kind: Kind
    payloads: list[bytes]


@dataclass(frozen=True, slots=True)
class OutboxBatch:
    """Whole transactions of an outbox, and where it goes on."""

    transactions: Sequence[tuple[str, Sequence[Outgoing]]]
    """Each with a name that no other transaction has."""
    snapshots: Sequence[SnapshotRows]
    staged: Sequence[tuple[str, StagedPart]]
    """Parts of snapshots that are beside the log already, each with its attempt."""
    position: Position

    def __len__(self) -> int:
        entries = sum(len(entries) for _, entries in self.transactions)
        staged = sum(part.file.messages for _, part in self.staged)
        return entries + staged + sum(len(rows.payloads) for rows in self.snapshots)

    def batches(self, first: int, at: Micros) -> Iterator[Batch]:
        """The rows of a group that begins at an offset."""
        yield from outgoing_batches(self.transactions, first, at)
        first += sum(len(entries) for _, entries in self.transactions)
        for rows in self.snapshots:
            yield from snapshot_batches(rows.client, rows.attempt, rows.payloads, rows.sites, rows.kind, first, at)
            first += len(rows.payloads)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a snapshot, as it stands."""

    request: str
    client: str
    sites: tuple[str, ...]
    attempt: str | None
    """Whose rows count now: `<request>.<number of the claim>-<mark>`; None when nobody supplies them."""
    claimed_by: str | None
    is_done: bool
    error: str | None
    """Why the last attempt failed."""
    failures: int
    supplied: int
    """How much is done, as the provider counts."""
    total: int | None
    """Of how much, if the provider said so."""


class Outbox(Protocol):
    """An outbox as its site uses it. Every call raises `source.unreachable` while the database is away, and works
    again when that is back; `queue.outbox_taken` if another site reads it. Any thread may call."""

    def install(self) -> None:
        """Make what is missing, and take the outbox if it is nobody's. The other calls do it, too, when they are the
        first."""
        ...

    def set_destinations(self, client: str, destinations: Mapping[str, Fullness]) -> None:
        """All destinations of a client. Writes only what has changed."""
        ...

    def clients(self) -> set[str]:
        """Those that have destinations."""
        ...

    def read(self, after: Position | None) -> OutboxBatch | None:
        """What was committed behind a position: whole transactions, none of which can be overtaken by one that commits
        later. None when there is nothing. Raises `source.position_lost` if the database is older than the position."""
        ...

    def forget(self, upto: Position) -> None:
        """Remove everything up to a position; it is durable elsewhere (I2)."""
        ...

    def ask(self, request: str, client: str, sites: Sequence[str]) -> bool:
        """Want a snapshot for some sites. Asking again may change the sites until somebody has claimed it; says whether
        the request is for these sites."""
        ...

    def withdraw(self, request: str) -> None:
        """A snapshot is not wanted any more: whoever supplies it is stopped. No error if there is no such request."""
        ...

    def refuse(self, attempt: str, why: str) -> None:
        """What an attempt has supplied cannot be used: it does not count any more, and another one is wanted."""
        ...

    def requests(self) -> list[Asked]:
        """All that were not withdrawn, the oldest first."""
        ...

    def close(self) -> None: ...


def outgoing(row: int, client: str, payload: bytes, destinations: str) -> Outgoing:
    """A row of `LRQ_Send_LogEntries`. Rows come from outside: one that makes no sense is told, and nothing is lost."""
    try:
        sites = json.loads(destinations)
        if not isinstance(sites, list) or not sites or not all(isinstance(site, str) for site in sites):
            raise ValueError("destinations must be a list of names")
        return Outgoing(check_client(client), bytes(payload), tuple(check_site(site) for site in sites))
    except (ValueError, TailraceError) as error:
        raise malformed("LRQ_Send_LogEntries", row, str(error)) from error


def snapshot_rows(
    found: Sequence[SuppliedRow],
) -> tuple[list[SnapshotRows], list[tuple[str, StagedPart]]]:
    """Rows of `LRQ_Send_SnapSync` with the sites of their request, as runs of the same attempt and kind; and those that
    only say where messages are."""
    runs: list[SnapshotRows] = []
    staged: list[tuple[str, StagedPart]] = []
    for row, client, attempt, number, payload, sites in found:
        try:
            if number == STAGED:
                staged.append((attempt, StagedPart.decode(bytes(payload))))
                continue
            kind = Kind(number)
        except ValueError as error:
            raise malformed("LRQ_Send_SnapSync", row, str(error)) from error
        if not runs or (runs[-1].attempt, runs[-1].kind) != (attempt, kind):
            runs.append(SnapshotRows(check_client(client), attempt, tuple(json.loads(sites)), kind, []))
        runs[-1].payloads.append(bytes(payload))
    return runs, staged


def malformed(table: str, row: int, why: str) -> TailraceError:
    """A row that somebody wrote by hand."""
    hint = "correct or delete the row; nothing behind it is sent until then"
    return TailraceError("queue.malformed", f"row {row} of {table} makes no sense: {why}", hint=hint)


def position_lost(where: str) -> TailraceError:
    """The database knows less than was read from it."""
    what = f"the outbox in {where} is older than what was sent from it: the database was restored"
    hint = "delete the messages in LRQ_Send_LogEntries that are not to be sent again, then the row in LRQ_Outbox"
    return TailraceError("source.position_lost", what, hint=hint)


def outbox_taken(where: str, site: str) -> TailraceError:
    """Another site reads the outbox."""
    what = f"the outbox in {where} is that of site {site}"
    hint = f"give each site an outbox of its own; if {site} is no more, or set up anew, delete the row in LRQ_Site"
    return TailraceError("queue.outbox_taken", what, hint=hint)
