"""Options of a MySQL or MariaDB server, as a source and as a destination."""

from __future__ import annotations

import zlib
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from tailrace.adaptor.mysql import probes
from tailrace.adaptor.mysql.comparing import MysqlReadBack
from tailrace.adaptor.mysql.reader import MysqlReader
from tailrace.adaptor.mysql.server import Server, Tls, parse_url
from tailrace.adaptor.mysql.target import KEY_LENGTH_MAX
from tailrace.adaptor.mysql.types import ZeroDates
from tailrace.adaptor.mysql.writer import MysqlWriter
from tailrace.adaptor.options import Check, FilePath, FilledIn, ReaderOptions, WriterOptions


def _is_url(url: SecretStr) -> SecretStr:
    parse_url(url.get_secret_value())
    return url


ServerUrl = Annotated[SecretStr, AfterValidator(_is_url)]
"""An address such as `mysql://user@host:3306/database`."""


def _null_is_a_word(said: Any) -> Any:
    """YAML takes `null` without quotes for nothing."""
    return ZeroDates.NULL if said is None else said


class MysqlReaderOptions(ReaderOptions):
    """A MySQL or MariaDB server that is read."""

    url: ServerUrl
    """Its address, `mysql://user@host:3306/database`; without a database all of them are read."""
    password: SecretStr | None = None
    """The password, when it is not in the address."""
    tls: Tls = Tls.PREFER
    """Whether the connection is encrypted, and whether the server must show a trusted certificate."""
    ca: FilePath | None = None
    """A file with the certificates that are trusted with `tls: verify`; those of the system unless said."""
    server_id: int = Field(default=0, ge=0, lt=1 << 32)
    """The number by which the server knows this replica; made from the name of the pipeline unless said."""
    piece_rows: int = Field(default=250_000, ge=1)
    """How many rows of a table one task copies at a time."""
    zero_dates: Annotated[ZeroDates, BeforeValidator(_null_is_a_word)] = ZeroDates.ERROR
    """Whether a date that is none, such as 0000-00-00, is an error, becomes null, or all dates are read as text."""
    pipeline: FilledIn = ""
    """The pipeline's name; it fills it in itself."""

    def where(self) -> str:
        return self.server().place

    def open(self) -> MysqlReader:
        return MysqlReader(self.server(), self.replica_id, self.zero_dates, self.piece_rows)

    def probe(self) -> list[Check]:
        return probes.of_source(self.server(), self.replica_id)

    @property
    def replica_id(self) -> int:
        """A number that no other replica is likely to have."""
        return self.server_id or 1 << 30 | zlib.crc32(self.pipeline.encode()) >> 2

    def server(self) -> Server:
        return _server(self.url, self.password, self.tls, self.ca, "source.unreachable")


class MysqlWriterOptions(WriterOptions):
    """A MySQL or MariaDB server that is written."""

    url: ServerUrl
    """Its address, `mysql://user@host:3306/database`."""
    password: SecretStr | None = None
    """The password, when it is not in the address."""
    tls: Tls = Tls.PREFER
    """Whether the connection is encrypted, and whether the server must show a trusted certificate."""
    ca: FilePath | None = None
    """A file with the certificates that are trusted with `tls: verify`; those of the system unless said."""
    into_database: str = Field(default="", max_length=64)
    """The database that all tables go to; that of the namespace unless said."""
    create: bool = True
    """Whether to create databases, tables and columns where they are missing, and to widen columns."""
    key: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """The key columns of a namespace where the source does not say, or others are wanted."""
    key_length: int = Field(default=255, ge=1, le=KEY_LENGTH_MAX)
    """How many characters a text may have that is part of a key, in tables that are made."""
    foreign_keys: bool = True
    """Whether foreign keys of the destination are checked."""
    consumer: FilledIn = ""
    """Under which name offsets are recorded; the pipeline fills it in."""

    def where(self) -> str:
        return self.server().place

    def open(self) -> MysqlWriter:
        return MysqlWriter(
            self.server(),
            self.consumer,
            self.key,
            database=self.into_database,
            creates=self.create,
            key_length=self.key_length,
            foreign_keys=self.foreign_keys,
        )

    def probe(self) -> list[Check]:
        return probes.of_destination(self.server(), creates=self.create)

    def read_back(self) -> MysqlReadBack:
        return MysqlReadBack(self.server(), self.key, self.into_database)

    def server(self) -> Server:
        return _server(self.url, self.password, self.tls, self.ca, "destination.unreachable")


def _server(url: SecretStr, password: SecretStr | None, tls: Tls, ca: str | None, unreachable: str) -> Server:
    parts = parse_url(url.get_secret_value())
    if password is not None:
        parts["password"] = password.get_secret_value()
    return Server(**parts, tls=tls, ca=ca or "", unreachable=unreachable)
