"""The keys of a file about sync: `sync` of a node file, or of a file of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final
from urllib.parse import quote

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from tailrace.adaptor.options import Bytes, FilePath, Options, Seconds
from tailrace.limits import SYNC_AHEAD_S
from tailrace.relay.address import is_loopback
from tailrace.sync.address import PeerAddress, checked_listen, checked_origin, checked_url
from tailrace.sync.auth import SECRET_CHARACTERS_MIN, Accept
from tailrace.sync.clock import WARN_AFTER_S, ClockPolicy, ClockRule
from tailrace.sync.entity import (
    BATCH_DEFAULT,
    BATCH_ROWS_DEFAULT,
    BATCH_ROWS_MAX,
    TABLE_ID_MAX,
    Authors,
    Deletes,
    Entity,
    Receive,
    Rule,
    RunOnChange,
    Sql,
    VersionKind,
    check_entities,
)
from tailrace.sync.room import BYTES_MAX, ROWS_MAX, RoomLimit


class SqliteForm(Options):
    """A SQLite database."""

    path: FilePath
    """The file."""


def _is_postgres(url: SecretStr) -> SecretStr:
    if not url.get_secret_value().startswith(("postgresql://", "postgres://")):
        raise ValueError("this is no address of PostgreSQL, which begins with postgresql://")
    return url


class PostgresForm(Options):
    """A PostgreSQL database."""

    url: Annotated[SecretStr, AfterValidator(_is_postgres)]
    """Its address, `postgresql://user@host:5432/database`."""
    password: SecretStr | None = None
    """The password, when it is not in the address."""

    @property
    def address(self) -> str:
        url = self.url.get_secret_value()
        if self.password is None:
            return url
        return f"{url}{'&' if '?' in url else '?'}password={quote(self.password.get_secret_value(), safe='')}"


class DatabaseForm(Options):
    """Where the tables are: one of the two."""

    sqlite: SqliteForm | None = None
    """A SQLite database."""
    postgres: PostgresForm | None = None
    """A PostgreSQL database."""

    @model_validator(mode="after")
    def _is_one(self) -> DatabaseForm:
        if (self.sqlite is None) == (self.postgres is None):
            raise ValueError("name either sqlite or postgres")
        return self

    @property
    def address(self) -> str:
        """As `open_database` takes it."""
        return self.sqlite.path if self.sqlite is not None else self.postgres.address if self.postgres else ""


class TlsForm(Options):
    """How connections to the node are encrypted."""

    certificate: FilePath
    """The node's certificate, in PEM."""
    key: FilePath
    """Its private key, in PEM."""


class ClockForm(Options):
    """What happens when another node's clock shows another time."""

    warn_after: Annotated[Seconds, Field(gt=0)] = WARN_AFTER_S
    """How much clocks may differ."""
    policy: ClockPolicy = ClockPolicy.WARN
    """What happens when they differ more."""
    ahead_max: Annotated[Seconds, Field(gt=0)] = SYNC_AHEAD_S
    """How far ahead of this node's clock a row may have been changed."""

    @property
    def rule(self) -> ClockRule:
        return ClockRule(self.policy, self.warn_after, self.ahead_max)


class QuarantineForm(Options):
    """How much is kept of what one node sends and cannot be taken. What is beyond it stays with its sender."""

    rows_max: Annotated[int, Field(gt=0)] = ROWS_MAX
    """Rows, at most, because of one node."""
    bytes_max: Bytes = BYTES_MAX
    """What they take together, at most."""

    @property
    def limit(self) -> RoomLimit:
        return RoomLimit(self.rows_max, self.bytes_max)


PEER_NAME: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$"


class PeerForm(Options):
    """A node that this one calls."""

    name: Annotated[str, Field(pattern=PEER_NAME)]
    """What it is called here. It knows this node by a secret that is made for that name."""
    url: Annotated[str, AfterValidator(checked_url)]
    """Where it listens, `https://host:port`; only this machine is called without encryption."""
    enrol: Annotated[SecretStr, Field(min_length=1)] | None = None
    """What is said there on the first contact, to be let in."""
    ca: FilePath | None = None
    """Certificates that sign its own, when the system's do not."""
    node: Annotated[int, Field(gt=0, lt=1 << 63)] | None = None
    """The number that it must have; needed for one that calls this node, too."""
    known_as: Annotated[str, Field(pattern=PEER_NAME)] | None = None
    """The name of another peer that is the same node, at another address."""

    @property
    def address(self) -> PeerAddress:
        enrol = None if self.enrol is None else self.enrol.get_secret_value()
        return PeerAddress(self.name, self.url, enrol, self.ca, self.node, self.known_as)


class BothForm(Options):
    """SQL that each dialect has in its own words."""

    sqlite: Annotated[str, Field(min_length=1)]
    """For SQLite."""
    postgres: Annotated[str, Field(min_length=1)]
    """For PostgreSQL."""


def _both(value: Any) -> Any:
    return {"sqlite": value, "postgres": value} if isinstance(value, str) else value


SqlForm = Annotated[BothForm, BeforeValidator(_both, json_schema_input_type=str | BothForm)]
"""SQL: a text for both dialects, or `{sqlite: …, postgres: …}`."""


def _sql(form: BothForm | None) -> Sql | None:
    return None if form is None else Sql(form.sqlite, form.postgres)


class OnChangeForm(Options):
    """SQL that says who gets what has changed."""

    sql: SqlForm
    """A statement that inserts into the tracker."""
    on: tuple[str, ...] = ()
    """The tables after whose changes it runs; that of the entity unless said."""

    @property
    def declared(self) -> RunOnChange:
        return RunOnChange(Sql(self.sql.sqlite, self.sql.postgres), self.on)


def _hooks(value: Any) -> Any:
    """One statement need not be in a list, nor in a mapping of its own."""
    hooks = value if isinstance(value, list | tuple) else [value]
    return [each if isinstance(each, Mapping) and "sql" in each else {"sql": each} for each in hooks]


class ReceiveForm(Options):
    """How rows of other nodes are taken."""

    view: str | None = None
    """The receive view's name."""
    select: SqlForm | None = None
    """What the view shows."""
    condition: SqlForm | None = None
    """Rows are taken where this is true, too; `NEW` is the row that comes, `NEW.fromNodeId` who sent it."""
    body: SqlForm | None = None
    """The statements that take a row, instead of an insert or update of the table."""

    @property
    def declared(self) -> Receive:
        return Receive(self.view, _sql(self.select), _sql(self.condition), _sql(self.body))


class EntityForm(Options):
    """A table that is synced."""

    table: Annotated[str, Field(min_length=1)]
    """Its name."""
    table_id: Annotated[int, Field(gt=0, le=TABLE_ID_MAX)]
    """The same at all nodes, and never another table's."""
    version: Annotated[str, Field(min_length=1)]
    """The column with the version id."""
    version_kind: VersionKind = VersionKind.TIME
    """Whether that is the time of the last change, or a hash."""
    key: tuple[str, ...] = ()
    """The columns that identify a row; those of the primary key unless said."""
    batch: int = BATCH_DEFAULT
    """Tables with a lower number come first: no other one begins before they are done."""
    batch_rows: Annotated[int, Field(gt=0, le=BATCH_ROWS_MAX)] = BATCH_ROWS_DEFAULT
    """So many rows travel at a time."""
    tracker: str = ""
    """The tracker table's name; the table's with `Replicate` behind it unless said."""
    receive: ReceiveForm = ReceiveForm()
    """How rows of other nodes are taken."""
    conflict: Rule = Rule.NEWER
    """Which version of a row stays."""
    audience: SqlForm | None = None
    """Which nodes may have a row: a condition on the table's columns and `:nodeId`."""
    run_on_change: Annotated[
        tuple[OnChangeForm, ...], BeforeValidator(_hooks, json_schema_input_type=str | list[OnChangeForm])
    ] = ()
    """Who gets what has changed; by `audience` unless said."""
    run_on_new_node: SqlForm | None = None
    """What a new node (`:newNodeId`) gets; by `audience` unless said."""
    by_hand: bool = False
    """Whether only the application inserts trackers."""
    deletes: Deletes = Deletes.REPLICATE
    """What happens when a row is deleted."""
    generate_key: bool = False
    """Whether rows that are inserted with the key 0 get one that no other node makes."""

    @property
    def declared(self) -> Entity:
        return Entity(
            self.table,
            self.table_id,
            self.version,
            version_kind=self.version_kind,
            key=self.key,
            batch=self.batch,
            batch_rows=self.batch_rows,
            tracker=self.tracker,
            receive=self.receive.declared,
            conflict=self.conflict,
            audience=_sql(self.audience),
            run_on_change=tuple(hook.declared for hook in self.run_on_change),
            run_on_new_node=_sql(self.run_on_new_node),
            by_hand=self.by_hand,
            deletes=self.deletes,
            generate_key=self.generate_key,
        )


class SyncForm(Options):
    """What can be said about sync."""

    database: DatabaseForm
    """Where the tables are."""
    entities: tuple[EntityForm, ...]
    """The tables that are synced."""
    listen: Annotated[str, AfterValidator(checked_listen)] | None = None
    """Where other nodes reach this one; nowhere unless said."""
    accept: Accept = Accept.KNOWN
    """Which nodes that were never here may begin to sync."""
    enrol: Annotated[SecretStr, Field(min_length=SECRET_CHARACTERS_MIN)] | None = None
    """A word that lets a new node in."""
    authors: Authors = Authors.ANY
    """Whose versions those who call may send; `own` is for nodes that are called by devices only."""
    origins: tuple[Annotated[str, AfterValidator(checked_origin)], ...] = ()
    """Where pages come from that may call it from a browser, `https://todo.example`; none unless said."""
    tls: TlsForm | None = None
    """How connections to it are encrypted."""
    clock: ClockForm = ClockForm()
    """What happens when another node's clock shows another time."""
    quarantine: QuarantineForm = QuarantineForm()
    """How much is kept of what cannot be taken."""
    peers: tuple[PeerForm, ...] = ()
    """The nodes that this one calls."""
    state: FilePath | None = None
    """The directory in which a run says how it is; beside this file, with `.state` behind its name, unless said."""

    @model_validator(mode="after")
    def _is_sound(self) -> SyncForm:
        if not self.entities:
            raise ValueError("entities: should not be empty")
        if self.listen is not None and self.tls is None and not is_loopback(self.listen):
            raise ValueError(f"listen: {self.listen} can be reached by others, so `tls` is needed")
        if self.listen is None and (self.enrol is not None or self.tls is not None or self.origins):
            raise ValueError("enrol, origins and tls are about nodes that call this one, so `listen` is needed")
        names = [peer.name for peer in self.peers]
        if len(set(names)) < len(names):
            raise ValueError("peers: two have the same name")
        check_entities(self.declared)
        return self

    @property
    def declared(self) -> tuple[Entity, ...]:
        return tuple(entity.declared for entity in self.entities)
