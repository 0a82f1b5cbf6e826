"""An entity: a table that is synced, as its owner declares it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from tailrace.errors import TailraceError
from tailrace.sync.exchange import Key
from tailrace.sync.names import LAST_KEYS, OWN_TABLES, Dialect

TABLE_ID_MAX: Final = (1 << 31) - 1
BATCH_DEFAULT: Final = 100
BATCH_ROWS_MAX: Final = 10_000
BATCH_ROWS_DEFAULT: Final = BATCH_ROWS_MAX
_ROWS: Final = ("new", "old", "excluded")
"""What SQL calls rows where it changes others."""
_OWN: Final = {name.lower() for name in (*OWN_TABLES, LAST_KEYS)}
NAME_BYTES_MAX: Final = 63
"""Of a name in PostgreSQL. Names of sync's own that would be longer are made of the table's number."""


class VersionKind(StrEnum):
    """What the version id of a row is."""

    TIME = "time"
    """When it was last changed, in milliseconds since 1970. Sync sets it where the application does not."""
    HASH = "hash"
    """A text that the application computes. Which of two is newer is told by when the change was noticed."""


class Rule(StrEnum):
    """Which version of a row stays."""

    NEWER = "newer"
    """The one that was changed later, of two at the same time that of the node with the greater id."""
    CUSTOM = "custom"
    """Whatever the receive view's condition and body say, and nothing else."""


class Deletes(StrEnum):
    """What happens when a row is deleted."""

    REPLICATE = "replicate"
    """A tombstone goes to all who have the row."""
    KEEP = "keep"
    """Nobody is told; others keep the row."""


@dataclass(frozen=True, slots=True)
class Sql:
    """SQL for one purpose: the same for both dialects, except where one has its own."""

    text: str
    postgres: str | None = None

    def of(self, dialect: Dialect) -> str:
        return self.postgres if dialect is Dialect.POSTGRES and self.postgres is not None else self.text


class Authors(StrEnum):
    """Whose versions those who call may send."""

    ANY = "any"
    """Everybody's: they may pass on what they got."""
    OWN = "own"
    """Only what they have made themselves."""


@dataclass(frozen=True, slots=True)
class Receive:
    """How rows of other nodes are taken."""

    view: str | None = None
    """The receive view's name; the table's with `_ReceiveView` behind it unless said."""
    select: Sql | None = None
    """What the view shows; it needs the table's columns."""
    condition: Sql | None = None
    """Rows are taken where this is true, too; `NEW` is the row that comes, `NEW.fromNodeId` who sent it. Of a deletion
    (`NEW.doorDeleted`) it is the row that would be deleted, as it is here."""
    body: Sql | None = None
    """The statements that take a row, instead of an insert or update of the table. They may refuse it: SQLite with
    `SELECT RAISE(ABORT, 'why')`, PostgreSQL with `RAISE EXCEPTION 'why'`. Deletions do not go through them."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What has changed, for a function that says who gets it."""

    upserted: Sequence[Key]
    deleted: Sequence[Key]


OnChange = Callable[[Any, Changes], Iterable[tuple[Key, int]]]
"""Given a connection of the database's driver and what has changed, says which keys go to which nodes."""
OnNewNode = Callable[[Any, int], Iterable[Key]]
"""Given a connection of the database's driver and a node, says which keys it gets."""


@dataclass(frozen=True, slots=True)
class RunOnChange:
    """SQL that inserts trackers after changes, for which it looks into the table ChangeLog."""

    sql: Sql
    on: tuple[str, ...] = ()
    """The tables after whose changes it runs; that of the entity unless said."""


@dataclass(frozen=True, slots=True)
class Entity:
    """A table that is synced. What is not said is read from the database."""

    table: str
    table_id: int
    """The same at all nodes, and never another table's."""
    version: str
    """The column with the version id."""
    version_kind: VersionKind = VersionKind.TIME
    key: tuple[str, ...] = ()
    """The columns that identify a row; those of the primary key unless said."""
    batch: int = BATCH_DEFAULT
    """Tables with a lower number come first: no other one begins before they are done."""
    batch_rows: int = BATCH_ROWS_DEFAULT
    """So many rows travel at a time, at most; fewer at first, and if they are large or the link is slow."""
    tracker: str = ""
    """The tracker table's name; the table's with `Replicate` behind it unless said."""
    receive: Receive = field(default_factory=Receive)
    conflict: Rule = Rule.NEWER
    audience: Sql | None = None
    """Which nodes may have a row: a condition on the table's columns and `:nodeId`. It is looked at when rows change,
    when a node is new, and again when rows are sent. Everybody unless said."""
    run_on_change: tuple[RunOnChange, ...] = ()
    """Who gets what has changed; by `audience` unless said."""
    run_on_new_node: Sql | None = None
    """What a new node (`:newNodeId`) gets; by `audience` unless said."""
    on_change: OnChange | None = field(default=None, compare=False)
    on_new_node: OnNewNode | None = field(default=None, compare=False)
    """The same as functions."""
    by_hand: bool = False
    """Whether only the application inserts trackers."""
    deletes: Deletes = Deletes.REPLICATE
    generate_key: bool = False
    """Whether rows that are inserted with the key 0 get one that no other node makes."""

    def __post_init__(self) -> None:
        for name in (self.table, self.tracker_name, self.view_name):
            if not name or "\0" in name or any("\ud800" <= letter <= "\udfff" for letter in name):
                raise _invalid(f"a table cannot be called {name!r}")
            if name.lower() in _OWN:
                raise _invalid(f"{name} is the name of a table of sync's own")
        if self.table.lower() in _ROWS or self.table.lower().startswith("door_"):
            raise _invalid(
                f"a table that is called {self.table} cannot be synced: in triggers that means something else"
            )
        if not 0 < self.table_id <= TABLE_ID_MAX:
            raise _invalid(f"table {self.table}: table_id {self.table_id} is not between 1 and {TABLE_ID_MAX}")
        if not 0 < self.batch_rows <= BATCH_ROWS_MAX:
            raise _invalid(f"table {self.table}: batch_rows {self.batch_rows} is not between 1 and {BATCH_ROWS_MAX}")
        if self.by_hand and (self.run_on_change or self.run_on_new_node or self.on_change or self.on_new_node):
            raise _invalid(f"table {self.table}: by_hand leaves nothing to run after changes")

    @classmethod
    def of(cls, table: Any, table_id: int, version: Any, **more: Any) -> Entity:
        """An entity on a table of SQLAlchemy, whose columns may be given as such, too."""
        if getattr(table, "schema", None):
            raise _invalid(f"table {table.name}: it has a schema of its own; leave it to the search path")
        found = [column.name for column in table.primary_key.columns] if "key" not in more else more.pop("key")
        key = tuple(str(getattr(column, "name", column)) for column in found)
        return cls(table.name, table_id, str(getattr(version, "name", version)), key=key, **more)

    @property
    def is_told_by_hooks(self) -> bool:
        """Whether only the entity's own SQL, functions or application know who may have a row."""
        return self.audience is None and bool(self.run_on_change or self.on_change is not None or self.by_hand)

    @property
    def tracker_name(self) -> str:
        return self.tracker or self._named("Replicate")

    @property
    def stamp_name(self) -> str:
        return self._named("Stamp")

    @property
    def view_name(self) -> str:
        return self.receive.view or self._named("_ReceiveView")

    def _named(self, what: str) -> str:
        name = f"{self.table}{what}"
        return name if len(name.encode(errors="replace")) <= NAME_BYTES_MAX else f"door_{self.table_id}{what}"


def _invalid(what: str) -> TailraceError:
    return TailraceError("config.invalid", what, hint="correct the entity")


def check_entities(entities: Sequence[Entity]) -> None:
    """Refuse entities that cannot be, or not together."""
    for entity in entities:
        audience: object = entity.audience
        if isinstance(audience, str):  # nobody would notice before the first node comes
            raise _invalid(f"table {entity.table}: audience is a text, and has to be Sql({audience!r})")
    for what in ("table_id", "table", "tracker_name", "stamp_name", "view_name"):
        seen: dict[Any, Entity] = {}
        for entity in entities:
            value = getattr(entity, what)
            told = value.lower() if isinstance(value, str) else value
            if (other := seen.setdefault(told, entity)) is not entity:
                raise _invalid(f"tables {other.table} and {entity.table} have the same {what}: {value}")
    known = {entity.table.lower() for entity in entities}
    for entity in entities:
        for hook in entity.run_on_change:
            for table in hook.on:
                if table.lower() not in known:
                    raise _invalid(f"table {entity.table}: run_on_change names {table}, which is no entity")
