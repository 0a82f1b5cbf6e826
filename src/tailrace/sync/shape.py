"""The shape of an entity in one database: its columns there, and the names of all that belongs to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property
from typing import Final

from tailrace.errors import TailraceError
from tailrace.sync import names
from tailrace.sync.database import Link
from tailrace.sync.entity import NAME_BYTES_MAX, Entity, VersionKind
from tailrace.sync.names import Dialect, mark, numbered, quoted

KEY_COLUMNS_MAX: Final = 4
_NOT_IN_VIEWS: Final = ("true", "false")
"""SQLite gives columns of views another name than these."""
_SQLITE_STRICT: Final = "SELECT strict FROM pragma_table_list WHERE name = ?1 COLLATE NOCASE AND schema = 'main'"
"""In such a table ANY keeps values as they are; elsewhere it is a type for numbers."""
_POSTGRES_COLUMNS: Final = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attgenerated <> '',
       coalesce(array_position(i.indkey::int2[], a.attnum), -1) + 1,
       CASE WHEN a.attgenerated = '' THEN pg_get_expr(d.adbin, d.adrelid) END, a.attnotnull, a.attidentity = 'a',
       CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END IN ('json'::regtype, 'jsonb'::regtype)
  FROM pg_attribute a
       JOIN pg_type t ON t.oid = a.atttypid
       LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
       LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attnum
"""


class Kind(Enum):
    """How a column's values travel."""

    PLAIN = auto()
    """As JSON has them: whole numbers, text."""
    REAL = auto()
    BOOLEAN = auto()
    BYTES = auto()
    """As `\\x` and hexadecimal digits."""
    JSON = auto()
    """As the text that the database writes, and read as text, too: as JSON it would be a string."""
    OTHER = auto()
    """As the text that the database writes."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    declared: str
    """Its type, as the database writes it."""
    kind: Kind
    is_generated: bool = False
    default: str | None = None
    """The expression for its value in rows that do not say one."""
    is_required: bool = False
    is_identity: bool = False
    """Whether the database numbers rows in it, and lets nobody change the number."""

    @property
    def read_as(self) -> str:
        """The type as which PostgreSQL reads its values out of JSON."""
        return "text" if self.kind is Kind.JSON else self.declared


@dataclass(frozen=True)
class Shape:
    """An entity, and what its database says about the table."""

    entity: Entity
    dialect: Dialect
    columns: tuple[Column, ...]
    """Those that travel."""
    key: tuple[str, ...]
    schema: str = ""
    """Where sync keeps its own in PostgreSQL."""
    table_schema: str = ""
    uniques: tuple[tuple[str, ...], ...] = ()
    """In SQLite: other columns than the key that no two rows may have in common."""
    refers_to: frozenset[str] = frozenset()
    """The tables to which foreign keys refer, in small letters."""

    @property
    def table_id(self) -> int:
        return self.entity.table_id

    @property
    def is_hash(self) -> bool:
        return self.entity.version_kind is VersionKind.HASH

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    @cached_property
    def key_types(self) -> tuple[str, ...]:
        return tuple(self.column(name).declared for name in self.key)

    @cached_property
    def version_type(self) -> str:
        return self.column(self.entity.version).declared

    @cached_property
    def table(self) -> str:
        return _in_schema(self.table_schema, quoted(self.entity.table))

    @cached_property
    def version(self) -> str:
        return quoted(self.entity.version)

    @cached_property
    def tracker(self) -> str:
        return self.own_table(self.entity.tracker_name)

    @cached_property
    def stamp(self) -> str:
        return self.own_table(self.entity.stamp_name)

    @cached_property
    def view(self) -> str:
        return _in_schema(self.schema, quoted(self.entity.view_name))

    @cached_property
    def tracker_key(self) -> tuple[str, ...]:
        return tuple(self.own(name) for name in numbered(names.TRACKER_KEY, len(self.key)))

    @cached_property
    def stamp_key(self) -> tuple[str, ...]:
        return tuple(self.own(name) for name in numbered(names.STAMP_KEY, len(self.key)))

    @cached_property
    def table_key(self) -> tuple[str, ...]:
        return tuple(map(quoted, self.key))

    def row_key(self, row: str) -> list[str]:
        """The key's columns of a row that has a name, such as NEW."""
        return [f"{row}.{name}" for name in self.table_key]

    def own(self, name: str) -> str:
        """A name of sync's own, as this database has it."""
        return quoted(name.lower() if self.dialect is Dialect.POSTGRES else name)

    def own_table(self, name: str) -> str:
        return _in_schema(self.schema, self.own(name))

    def shown(self, name: str, expression: str) -> str:
        """An expression for a column's value that the driver gives as it travels."""
        is_text = self.dialect is Dialect.POSTGRES and self.column(name).kind in (Kind.OTHER, Kind.BYTES, Kind.JSON)
        return f"{expression}::text" if is_text else expression

    def mark(self, number: int) -> str:
        """Where a value is bound, counted from 1."""
        return mark(self.dialect, number)

    def lets_go(self, condition: str) -> str:
        """Whether a receive view's condition lets a row be deleted, which is `NEW` as it is here. Where no such row is,
        there is only its key: what cannot be told from that is no reason to refuse."""
        at_row = names.equal(self.table_key, self.row_key("NEW"))
        is_here = f"EXISTS (SELECT 1 FROM {self.table} WHERE {at_row})"  # noqa: S608  names are quoted
        return f"coalesce(({condition}), NOT {is_here})"

    def upsert(self, source: str = "") -> str:
        """What a receive view does with a row unless somebody says otherwise, or the same for the rows of a query."""
        columns = ", ".join(map(quoted, self.column_names))
        values = source or f"VALUES ({', '.join(f'NEW.{quoted(name)}' for name in self.column_names)})"
        others = [quoted(each.name) for each in self.columns if each.name not in self.key and not each.is_identity]
        changes = ", ".join(f"{name} = excluded.{name}" for name in others)
        override = " OVERRIDING SYSTEM VALUE" if self.dialect is Dialect.POSTGRES else ""
        into = f"{self.table}({columns}){override}"
        return f"""INSERT INTO {into} {values}
            ON CONFLICT ({", ".join(self.table_key)}) DO UPDATE SET {changes};"""


def _in_schema(schema: str, name: str) -> str:
    return f"{quoted(schema)}.{name}" if schema else name


def shape_of(link: Link, entity: Entity, dialect: Dialect) -> Shape:
    """Look at the table. Raises `config.invalid` when it cannot be synced as declared."""
    found, primary = (_postgres if dialect is Dialect.POSTGRES else _sqlite)(link, entity)
    own_schema, table_schema = _schemas(link, entity) if dialect is Dialect.POSTGRES else ("", "")
    if not found:
        raise _invalid(entity, "there is no such table")
    present = {column.name.lower(): column.name for column in found}
    if dialect is Dialect.POSTGRES:
        present = {column.name: column.name for column in found}
        _check_lengths(entity)
    wanted = entity.key or primary
    if not wanted:
        raise _invalid(entity, "it has no primary key; name the columns that identify a row with `key`")
    key = tuple(_present(entity, present, name, dialect) for name in wanted)
    version = _present(entity, present, entity.version, dialect)
    columns = tuple(column for column in found if not column.is_generated or column.name in key)
    uniques = _sqlite_uniques(link, entity, key) if dialect is Dialect.SQLITE else ()
    named = _with_version(entity, version)
    shape = Shape(named, dialect, columns, key, own_schema, table_schema, uniques, _references(link, entity, dialect))
    _check(shape)
    return shape


def _with_version(entity: Entity, version: str) -> Entity:
    return entity if entity.version == version else replace(entity, version=version)


def _present(entity: Entity, present: dict[str, str], name: str, dialect: Dialect) -> str:
    found = present.get(name if dialect is Dialect.POSTGRES else name.lower())
    if found is None:
        raise _invalid(entity, f"it has no column {name!r}, only {', '.join(present.values())}")
    return found


def _check(shape: Shape) -> None:
    entity = shape.entity
    version = shape.column(entity.version)
    declared = version.declared.lower()
    if len(shape.key) > KEY_COLUMNS_MAX:
        raise _invalid(entity, f"its key has {len(shape.key)} columns, and only {KEY_COLUMNS_MAX} are possible")
    if any(shape.column(name).kind is Kind.JSON for name in shape.key):
        raise _invalid(entity, "JSON cannot identify a row")
    if entity.version in shape.key:
        raise _invalid(entity, f"the version {entity.version!r} is a column of the key")
    if shape.is_hash and not ("char" in declared or "text" in declared or "clob" in declared):
        raise _invalid(entity, f"a hash is text, and the version {entity.version!r} is {version.declared or 'untyped'}")
    if not shape.is_hash and "int" not in declared:
        what = f"the time of a change is a whole number, and the version {entity.version!r} is {version.declared!r}"
        raise _invalid(entity, what)
    if not shape.is_hash and shape.dialect is Dialect.POSTGRES and declared != "bigint":
        raise _invalid(entity, f"milliseconds need bigint, and the version {entity.version!r} is {version.declared}")
    if entity.generate_key and (len(shape.key) > 1 or "int" not in shape.key_types[0].lower()):
        raise _invalid(entity, "only a key of one whole number can be generated")
    if entity.generate_key and shape.dialect is Dialect.POSTGRES and shape.key_types[0] != "bigint":
        raise _invalid(entity, f"a key that is generated needs bigint, and {shape.key[0]!r} is {shape.key_types[0]}")
    own_columns = {name.lower() for name in (*numbered(names.TRACKER_KEY, len(shape.key)), names.TRACKER_NODE)}
    own_columns |= {names.TRACKER_VERSION.lower(), names.TRACKER_PROCESSED.lower(), names.FROM_NODE.lower()}
    own_columns |= {names.TRACKER_VERSION_NODE.lower(), "doortime", "doornode", "doordeleted", "doorversion"}
    for column in shape.columns:
        if column.name.lower() in own_columns:
            raise _invalid(entity, f"its column {column.name!r} is called like one of sync's own; rename it")
        if shape.dialect is Dialect.SQLITE and column.name.lower() in _NOT_IN_VIEWS:
            raise _invalid(entity, f"a view of SQLite cannot have its column {column.name!r}; rename it")


def _check_lengths(entity: Entity) -> None:
    for name in (entity.table, entity.tracker_name, entity.stamp_name, entity.view_name):
        if len(name.encode()) > NAME_BYTES_MAX:
            what = f"{name!r} is longer than the {NAME_BYTES_MAX} bytes that PostgreSQL keeps of a name"
            raise _invalid(entity, what)


def _sqlite(link: Link, entity: Entity) -> tuple[list[Column], tuple[str, ...]]:
    query = """SELECT name, type, hidden, pk, dflt_value, "notnull" FROM pragma_table_xinfo(?1) WHERE hidden <> 1"""
    found = link.rows(query, (entity.table,))
    if any(row[1].upper() == "ANY" for row in found) and link.value(_SQLITE_STRICT, (entity.table,)):
        found = [(name, "" if kind.upper() == "ANY" else kind, *more) for name, kind, *more in found]
    columns = [
        Column(name, declared, _sqlite_kind(declared), bool(hidden), default, bool(required))
        for name, declared, hidden, _, default, required in found
    ]
    return columns, tuple(row[0] for row in sorted(found, key=lambda row: row[3]) if row[3])


def _sqlite_uniques(link: Link, entity: Entity, key: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """What else identifies a row, beside the key: by unique indexes, or as the table's primary key."""
    query = """SELECT l.name, i.name, i.coll FROM pragma_index_list(?1) AS l, pragma_index_xinfo(l.name) AS i
        WHERE l."unique" AND i."key" ORDER BY l.seq, i.seqno"""
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for index, column, collation in link.rows(query, (entity.table,)):
        found[index] = (*found.get(index, ()), (column, collation))
    uniques = {tuple(column for column, _ in index) for index in found.values()}
    for index in found.values():
        if {column for column, _ in index} == set(key) and any(collation != "BINARY" for _, collation in index):
            raise _invalid(entity, "its key is not compared byte by byte; give it the collation BINARY")
    _, primary = _sqlite(link, entity)
    uniques |= {primary} if primary else set()
    return tuple(sorted(unique for unique in uniques if None not in unique and set(unique) != set(key)))


def _references(link: Link, entity: Entity, dialect: Dialect) -> frozenset[str]:
    if dialect is Dialect.POSTGRES:
        query = """SELECT c.relname::text FROM pg_constraint k JOIN pg_class c ON c.oid = k.confrelid
            WHERE k.conrelid = to_regclass($1) AND k.contype = 'f'"""
        return frozenset(name.lower() for (name,) in link.rows(query, (quoted(entity.table),)))
    query = 'SELECT "table" FROM pragma_foreign_key_list(?1)'
    return frozenset(name.lower() for (name,) in link.rows(query, (entity.table,)))


def _sqlite_kind(declared: str) -> Kind:
    name = declared.upper()
    if "BOOL" in name:
        return Kind.BOOLEAN
    if "BLOB" in name or "BYTEA" in name:
        return Kind.BYTES
    if any(part in name for part in ("REAL", "FLOA", "DOUB")):
        return Kind.REAL
    return Kind.PLAIN


def _postgres(link: Link, entity: Entity) -> tuple[list[Column], tuple[str, ...]]:
    found = link.rows(_POSTGRES_COLUMNS, (quoted(entity.table),))
    columns = [
        Column(name, declared, _postgres_kind(declared, is_json), is_generated, default, required, is_identity)
        for name, declared, is_generated, _, default, required, is_identity, is_json in found
    ]
    return columns, tuple(row[0] for row in sorted(found, key=lambda row: row[3]) if row[3])


def _schemas(link: Link, entity: Entity) -> tuple[str, str]:
    query = """SELECT current_schema()::text, (SELECT n.nspname::text FROM pg_class c
        JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1))"""
    own_schema, table_schema = link.rows(query, (quoted(entity.table),))[0]
    return own_schema or "public", table_schema or ""


def _postgres_kind(declared: str, is_json: bool) -> Kind:
    if is_json:
        return Kind.JSON
    name = declared.partition("(")[0]
    if name in ("smallint", "integer", "bigint", "text", "character varying"):
        return Kind.PLAIN
    if name in ("real", "double precision"):
        return Kind.REAL
    if name == "boolean":
        return Kind.BOOLEAN
    return Kind.BYTES if name == "bytea" else Kind.OTHER


def _invalid(entity: Entity, what: str) -> TailraceError:
    return TailraceError("config.invalid", f"table {entity.table}: {what}", hint="correct the entity, or the table")
