"""Options of a PostgreSQL database, as a source and as a destination."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from psycopg import ProgrammingError, conninfo
from pydantic import AfterValidator, Field, SecretStr, model_validator

from tailrace.adaptor.options import Check, FilledIn, ReaderOptions, WriterOptions
from tailrace.adaptor.postgres import probes
from tailrace.adaptor.postgres.comparing import PostgresReadBack
from tailrace.adaptor.postgres.feed import Feed
from tailrace.adaptor.postgres.reader import PostgresReader
from tailrace.adaptor.postgres.server import Server
from tailrace.adaptor.postgres.slot import Slot
from tailrace.adaptor.postgres.slotfeed import SlotFeed
from tailrace.adaptor.postgres.storage import PostgresStorage
from tailrace.adaptor.postgres.triggered import TriggerFeed
from tailrace.adaptor.postgres.types import Arrays, Choices, Moments, Numerics
from tailrace.adaptor.postgres.writer import PostgresWriter
from tailrace.errors import TailraceError


def _is_url(url: SecretStr) -> SecretStr:
    try:
        conninfo.conninfo_to_dict(url.get_secret_value())
    except ProgrammingError as error:
        raise ValueError(f"this is no address of PostgreSQL: {error}") from None
    return url


DatabaseUrl = Annotated[SecretStr, AfterValidator(_is_url)]
"""An address such as `postgresql://user@host:5432/database`."""


class ChangesBy(StrEnum):
    """How changes are learned."""

    SLOT = "slot"
    TRIGGERS = "triggers"


class PostgresReaderOptions(ReaderOptions):
    """A PostgreSQL database that is read."""

    url: DatabaseUrl
    """Its address, `postgresql://user@host:5432/database`; what is left out comes from the environment (PGHOST, …)."""
    password: SecretStr | None = None
    """The password, when it is not in the address."""
    changes: ChangesBy = ChangesBy.SLOT
    """Whether changes come through a replication slot, or through triggers where there is no logical decoding."""
    slot: str = Field(default="", pattern="^[a-z0-9_]{0,50}$")
    """The replication slot and the publication that are made; `tailrace_` and the name of the pipeline unless said."""
    piece_rows: int = Field(default=250_000, ge=1)
    """How many rows of a table one task copies at a time."""
    numerics: Numerics = Numerics.DECIMAL
    """Whether `numeric(p,s)` becomes exact decimals, which have no NaN, or text."""
    arrays: Arrays = Arrays.LIST
    """Whether arrays become lists of the declared number of dimensions, or text."""
    moments: Moments = Moments.ARROW
    """Whether dates and timestamps become Arrow's own types, or text."""
    pipeline: FilledIn = ""
    """The pipeline's name; it fills it in itself."""

    def where(self) -> str:
        return self.server().place

    def open(self) -> PostgresReader:
        server, choices = self.server(), Choices(self.numerics, self.arrays, self.moments)
        feed: Feed = SlotFeed(Slot(server, self.slot_name), choices)
        if self.changes is ChangesBy.TRIGGERS:
            feed = TriggerFeed(server, self.pipeline, choices)
        return PostgresReader(server, feed, choices, self.piece_rows)

    def open_view(self, snapshot: str) -> PostgresReader:
        """A reader that copies tables as a snapshot has them."""
        choices = Choices(self.numerics, self.arrays, self.moments)
        feed = SlotFeed(Slot(self.server(), self.slot_name), choices)
        return PostgresReader(self.server(), feed, choices, self.piece_rows, snapshot)

    def probe(self) -> list[Check]:
        slot = self.slot_name if self.changes is ChangesBy.SLOT else None
        return probes.of_source(self.server(), slot)

    @property
    def slot_name(self) -> str:
        """A slot's name has only small letters, digits and underscores."""
        if self.slot:
            return self.slot
        tame = "".join(sign if sign.isascii() and sign.isalnum() else "_" for sign in self.pipeline.lower())
        return f"tailrace_{tame}"[:50] if tame else "tailrace"

    def server(self) -> Server:
        return Server(with_password(self.url, self.password))


def with_password(url: SecretStr, password: SecretStr | None) -> str:
    """The address as the driver wants it."""
    if password is None:
        return url.get_secret_value()
    return conninfo.make_conninfo(url.get_secret_value(), password=password.get_secret_value())


def _no_store(why: str, cure: str) -> TailraceError:
    return TailraceError("config.invalid", f"a PostgreSQL store of a node: {why}", hint=f"use {cure}")


class PostgresWriterOptions(WriterOptions):
    """A PostgreSQL database that is written."""

    url: DatabaseUrl
    """Its address, `postgresql://user@host:5432/database`; what is left out comes from the environment (PGHOST, …)."""
    password: SecretStr | None = None
    """The password, when it is not in the address."""
    into_schema: str = Field(default="", max_length=63)
    """The schema that all tables go to; that of the namespace unless said."""
    create: bool = True
    """Whether to create schemas, tables and columns where they are missing, and to widen columns."""
    key: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """The key columns of a namespace where the source does not say, or others are wanted."""
    as_replica: bool = False
    """Whether triggers and foreign keys of the destination rest (`session_replication_role = replica`)."""
    in_order: bool = False
    """Whether all changes are applied in the source's order across tables, which foreign keys need; it is slower."""
    parallel: int = Field(default=1, ge=1, le=64)
    """In how many transactions at a time rows are written, by their keys. With several, what one transaction of the
    source has changed can be seen in parts, and foreign keys must rest (`as_replica`)."""
    consumer: FilledIn = ""
    """Under which name offsets are recorded; the pipeline fills it in."""

    @model_validator(mode="after")
    def _either_order_or_parts(self) -> Self:
        if self.in_order and self.parallel > 1:
            raise ValueError("in_order and parallel exclude each other: several transactions have no order")
        return self

    def where(self) -> str:
        return self.server().place

    def open(self) -> PostgresWriter:
        return PostgresWriter(
            self.server(),
            self.consumer,
            self.key,
            schema=self.into_schema,
            creates=self.create,
            as_replica=self.as_replica,
            in_order=self.in_order,
            parts=self.parallel,
        )

    def open_storage(self, reading: ReaderOptions) -> PostgresStorage:
        """This database as the store of a node."""
        if not isinstance(reading, PostgresReaderOptions) or reading.changes is not ChangesBy.SLOT:
            raise _no_store("`changes: triggers` cannot tell what a node has applied from what users wrote", "slot")
        if self.into_schema or self.parallel > 1:
            raise _no_store("`into_schema` and `parallel` are for pipelines", "their defaults")
        return PostgresStorage(
            server=self.server(),
            reading=reading,
            consumer=self.consumer,
            keys=self.key,
            creates=self.create,
            as_replica=self.as_replica,
            in_order=self.in_order,
        )

    def probe(self) -> list[Check]:
        return probes.of_destination(self.server(), creates=self.create, as_replica=self.as_replica)

    def read_back(self) -> PostgresReadBack:
        return PostgresReadBack(self.server(), self.key, self.into_schema)

    def server(self) -> Server:
        return Server(with_password(self.url, self.password), "destination.unreachable")
