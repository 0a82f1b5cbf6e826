"""The store of a replica: a database with the rows that the copied log tells, for programs that only read.

    fill, from a snapshot of a node → apply what the log has behind it, at once or late → and so on

Tables can be ignored: their messages stay in the log, and their rows are put aside. What a store has applied of a log
that is cut afterwards never happened, so it is filled anew.
"""

from __future__ import annotations

import os
import secrets
import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tailrace.errors import TailraceError
from tailrace.log.identity import identity_of as log_identity
from tailrace.log.view import LogView
from tailrace.message import Offset
from tailrace.namespace import RESERVED
from tailrace.node.conflict import Policies
from tailrace.node.contract import NodeStorage, NodeWriter, StoreOptions
from tailrace.node.filling import as_messages, fill
from tailrace.node.form import StoreSpec
from tailrace.node.identity import identity_of
from tailrace.node.merging import Merger, put
from tailrace.pipeline.suggest import did_you_mean
from tailrace.relay.decisions import Decisions
from tailrace.relay.joining import Taken
from tailrace.relay.names import VERSIONS
from tailrace.relay.outgoing import first_missing
from tailrace.topology.aside import Aside
from tailrace.topology.backfill import Backfill
from tailrace.topology.followedlog import FollowedLog
from tailrace.topology.rowsource import RowSource
from tailrace.topology.storememory import StoreMemory, keep_reached, recall, recall_reached
from tailrace.topology.thinning import Thinning
from tailrace.topology.waiting import Waiting

if TYPE_CHECKING:
    from tailrace.log.batch import Batch
    from tailrace.relay.applier import Source
    from tailrace.source.contract import Table

_PREFIX: Final = "replica"


@dataclass(slots=True)
class _Opened:
    """A database, and how far it is."""

    log: FollowedLog
    storage: NodeStorage
    memory: StoreMemory
    merger: Merger


class ReplicaStore:
    """One database. `tend` is for one thread, `cutting` for the one that copies the log."""

    def __init__(
        self,
        spec: StoreSpec,
        name: str,
        data: str,
        sources: Sequence[Source],
        report: Callable[[str], None],
        *,
        wait_s: float = 0.0,
        ignored: Collection[str] = (),
    ) -> None:
        """Of the replica with that name; `sources` are asked for the rows to begin with."""
        if not isinstance(spec.writing, StoreOptions):
            what = f"{spec.writing.where()} cannot be the store of a replica"
            raise TailraceError("config.invalid", what, hint="use sqlite or postgres")
        self.waiting = Waiting(wait_s)
        self.error: TailraceError | None = None
        """Why it is not kept up, while it is not."""
        self.allowed = Offset(0)
        """Up to here it may be by now."""
        self._spec = spec
        self._reading = spec.reading_as(f"{_PREFIX} {name}")
        self._data = data
        self._directory = os.path.join(data, "log")
        self._rows = RowSource(data, sources)
        self._report = report
        self._ignored = frozenset(ignored)
        self._turn = threading.RLock()
        self._opened: _Opened | None = None
        self._cuts = 0
        self._aside = Aside(os.path.join(data, "aside"))
        self._backfills = os.path.join(data, "backfill")
        shutil.rmtree(self._backfills, ignore_errors=True)
        self._backfill: Backfill | None = None
        self._met: set[str] = set()
        """Tables of which there are messages."""
        self._closed: set[str] = set()
        """Those of them that programs cannot write."""

    @property
    def applied(self) -> Offset | None:
        """Everything before is in the database; None while it is not filled."""
        opened = self._opened
        return None if opened is None or opened.memory.vclock is None else opened.merger.next_offset

    @property
    def needed_from(self) -> Offset | None:
        """Everything before can go from the log."""
        opened = self._opened
        return None if opened is None or opened.memory.vclock is None else opened.merger.needed_from

    @property
    def ignored(self) -> list[str]:
        """The tables that are not in the database, those included that come back."""
        return sorted(self._ignored if self._opened is None else self._opened.memory.lacks)

    @property
    def backfilled(self) -> str | None:
        """The table that is coming back."""
        return None if self._backfill is None else self._backfill.namespace

    def tend(self, *, may_fill: bool) -> bool:
        """One step towards the end of the log; says whether there is more to do at once."""
        with self._turn:
            opened = self._open()
        if opened.memory.vclock is None:
            if may_fill:
                self._fill()
            return may_fill
        with self._turn:
            opened = self._open()
            if opened.memory.vclock is None or self._is_lost(opened):
                return False
            self._settle_ignored(opened)
            return self._apply(opened)

    @contextmanager
    def cutting(self, offset: Offset) -> Iterator[None]:
        """Within it the log loses what is behind an offset. A store that has more of it is to be filled anew: that is
        durable before the log is touched."""
        with self._turn:
            opened = self._open()
            self._cuts += 1
            self.waiting.forget(offset)
            if opened.memory.vclock is not None and opened.merger.next_offset > offset:
                self._lose(opened, f"the log was cut at offset {offset}, and its store was further")
            self._close()
            yield

    def hurry(self, upto: Offset) -> None:
        """What is before an offset is applied without waiting any longer."""
        self.waiting.hurried = max(self.waiting.hurried, upto)

    def close(self) -> None:
        with self._turn:
            self._end_backfill()
            self._close()

    def _open(self) -> _Opened:
        if self._opened is None:
            memory = self._recalled() or self._unfilled()
            if memory.log != log_identity(self._directory):
                what = f"{self._spec.writing.where()} has the rows of another log"
                raise TailraceError("topology.store", what, hint="give the replica a database of its own")
            if memory.owner != str(identity_of(self._data).node):
                if not self._spec.replaces:
                    what = f"{self._spec.writing.where()} is the store of another replica"
                    hint = "give each a database of its own; or end the other one, and say `replace: true` at `store`"
                    raise TailraceError("topology.store", what, hint=hint)
                memory = self._unfilled(memory.epoch + 1)
            if memory.vclock is not None and memory.namespace != self._pattern:
                memory = self._unfilled(memory.epoch + 1)
                self._report("other tables are wanted than before, so the store is filled anew")
            self._opened = self._open_as(memory)
        return self._opened

    def _unfilled(self, epoch: int = 0) -> StoreMemory:
        return StoreMemory(log_identity(self._directory), str(identity_of(self._data).node), epoch)

    def _open_as(self, memory: StoreMemory) -> _Opened:
        log = FollowedLog(self._directory)
        storage = self._storage(f"{_PREFIX}-{memory.log}-{memory.epoch}")
        with closing(storage.open_unnoted()) as writer:
            start = recall_reached(writer)
        merger = Merger(
            storage,
            log,
            self._wants,
            start,
            Policies(),
            tells=False,
            captures=False,
            known=memory.vclock,
            reached=keep_reached,
        )
        merger.recall()
        return _Opened(log, storage, memory, merger)

    def _close(self) -> None:
        if self._opened is not None:
            self._opened.storage.close()
            self._opened = None

    def _recalled(self) -> StoreMemory | None:
        storage = self._storage(_PREFIX)
        try:
            with closing(storage.open_unnoted()) as writer:
                return recall(writer)
        finally:
            storage.close()

    def _storage(self, consumer: str) -> NodeStorage:
        writing: Any = self._spec.writing.model_copy(update={"consumer": consumer})
        storage: NodeStorage = writing.open_storage(self._reading)
        return storage

    @property
    def _pattern(self) -> str:
        return str(self._spec.namespace.pattern)

    def _wants(self, namespace: str) -> bool:
        lacks = self._opened.memory.lacks if self._opened is not None else self._ignored
        is_wanted = self._spec.namespace.search(namespace) is not None and namespace not in lacks
        if is_wanted:
            self._met.add(namespace)
        return is_wanted

    def _is_lost(self, opened: _Opened) -> bool:
        """Whether the log does not go on from where the store is."""
        reached = opened.merger.needed_from
        if opened.log.first <= reached and opened.merger.next_offset <= opened.log.end:
            return False
        what = f"the log goes from offset {opened.log.first} to {opened.log.end}, and its store is at {reached}"
        self._lose(opened, what)
        return True

    def _lose(self, opened: _Opened, why: str) -> None:
        """From now on, durably, the store is to be filled."""
        memory = self._unfilled(opened.memory.epoch + 1)
        with closing(opened.storage.open_unnoted()) as writer:
            memory.keep(writer)
            writer.commit(Offset(0))
        self._end_backfill()
        self._close()
        self._report(f"the store is filled anew: {why}")

    def _fill(self) -> None:
        cuts = self._cuts
        joining, taken = self._rows.take()
        with self._turn:
            if self._cuts == cuts:  # otherwise the snapshot may have what never happened
                self._load(self._open(), taken)
                self._close()
        joining.forget()

    def _load(self, opened: _Opened, taken: Taken) -> None:
        """All rows at once, with what the store needs to know to go on."""
        began = first_missing(opened.log.view, taken.vclock)
        lacks = dict.fromkeys(sorted(self._ignored), began)
        memory = replace(opened.memory, vclock=taken.vclock, namespace=self._pattern, lacks=lacks)
        for namespace in lacks:
            self._aside.begin(namespace)
        with closing(opened.storage.open_unnoted()) as writer:
            self._clear(writer, is_ours=recall(writer) is not None)
            filled = fill(writer, self._sifted(taken.batches, lacks), self._wants, taken.limbo, 0)
            memory.keep(writer)
            keep_reached(writer, began)
            writer.commit(Offset(began - 1))
        self._report(f"the store has {filled.count} rows, as of offset {began}")
        self._tell_unknown(lacks)

    def _tell_unknown(self, ignored: Collection[str]) -> None:
        """Names that are no tables, as far as anybody knows: somebody may have meant others."""
        known = [*(table.namespace for table in self._tables()), *self._told_names()]
        for name in ignored:
            if name not in known and not self._aside.has(name):
                self._report(f"there is no table {name} yet, which is to be ignored{did_you_mean(name, known)}")

    def _told_names(self) -> list[str]:
        return [name for name in LogView(self._directory).last_offsets() if not name.startswith(RESERVED)]

    def _clear(self, writer: NodeWriter, *, is_ours: bool) -> None:
        for table in self._tables():
            if not is_ours and not self._spec.replaces and writer.has_rows(table.namespace):
                what = f"{table.namespace} has rows, and a replica begins with those of its source"
                raise TailraceError("relay.not_empty", what, hint="empty it, or say `replace: true` at `store`")
            writer.clear(table.namespace)

    def _sifted(self, batches: Iterable[Batch], lacks: Collection[str]) -> Iterator[Batch]:
        """The rows of tables that are ignored are put aside."""
        for batch in batches:
            if batch.namespace in lacks and batch.namespace != VERSIONS:
                self._aside.put(batch)
            else:
                yield batch

    def _tables(self) -> list[Table]:
        with closing(self._reading.open()) as reader:
            return [table for table in reader.tables() if self._spec.namespace.search(table.namespace)]

    def _apply(self, opened: _Opened) -> bool:
        end = opened.log.end
        merger = opened.merger
        self.waiting.arrived(end)
        upto = self.allowed = self.waiting.upto(opened.log.view, merger.next_offset, end)
        if merger.next_offset < upto:
            merger.merge(upto, {})
        if self._met - self._closed:
            opened.storage.close_to_users([table.namespace for table in self._tables()])
            self._closed |= self._met
        return merger.next_offset < upto

    def _settle_ignored(self, opened: _Opened) -> None:
        """Put aside what is ignored from now on, and bring back what is not ignored any more."""
        lacks = opened.memory.lacks
        if news := sorted(self._ignored - lacks.keys()):
            self._put_aside(opened, news)
        if self._backfill is not None:
            if self._backfill.is_done:
                self._bring_back(opened, self._backfill)
            return
        for namespace in sorted(lacks.keys() - self._ignored):
            if lacks[namespace] < opened.log.first:
                self._lose(opened, f"the log does not tell all of {namespace} any more, which was ignored")
                return
            self._begin_backfill(opened, namespace)
            return

    def _put_aside(self, opened: _Opened, namespaces: Sequence[str]) -> None:
        lacks = {**opened.memory.lacks, **dict.fromkeys(namespaces, opened.merger.needed_from)}
        memory = replace(opened.memory, lacks=lacks)
        with closing(self._reading.open()) as reader:
            tables = {table.namespace: table for table in reader.tables()}
            for namespace in namespaces:
                self._aside.begin(namespace)
                for piece in reader.plan_copy(tables[namespace]) if namespace in tables else ():
                    for batch in reader.read_copy(namespace, piece):
                        self._aside.put(batch)
        with closing(opened.storage.open_unnoted()) as writer:
            for namespace in namespaces:
                writer.clear(namespace)
            memory.keep(writer)
            writer.commit(Offset(opened.merger.next_offset - 1))
        opened.memory = memory
        self._report(f"{', '.join(namespaces)}: ignored from now on")

    def _begin_backfill(self, opened: _Opened, namespace: str) -> None:
        start, end = opened.memory.lacks[namespace], opened.merger.needed_from
        undone = Decisions(LogView(self._directory)).undone(start, end)
        self._report(f"{namespace} is not ignored any more: Spark looks through offsets {start} to {end}")
        self._backfill = Backfill(
            Thinning(
                log=self._directory,
                namespace=namespace,
                key=opened.storage.key_of(namespace, ()),
                start=start,
                end=end,
                undone=tuple((each.start, each.stop) for each in undone),
                to=os.path.join(self._backfills, secrets.token_hex(8)),
            )
        )

    def _bring_back(self, opened: _Opened, backfill: Backfill) -> None:
        """The rows that were put aside, and what has happened to them since, all at once."""
        namespace = backfill.namespace
        end = opened.merger.next_offset
        undone = Decisions(LogView(self._directory)).undone(opened.memory.lacks[namespace], end)
        memory = replace(
            opened.memory, lacks={name: since for name, since in opened.memory.lacks.items() if name != namespace}
        )
        try:
            with closing(opened.storage.open_unnoted()) as writer:
                count = 0
                for batch in self._aside.batches(namespace):
                    count += put(writer, as_messages(batch, count))
                opened.merger.replay(writer, backfill.stream(end, undone))
                memory.keep(writer)
                writer.commit(Offset(end - 1))
        finally:
            self._end_backfill()
        opened.memory = memory
        self._aside.forget(namespace)
        self._report(f"{namespace} is back, as of offset {end}")

    def _end_backfill(self) -> None:
        backfill, self._backfill = self._backfill, None
        if backfill is not None:
            backfill.end()
            shutil.rmtree(self._backfills, ignore_errors=True)
