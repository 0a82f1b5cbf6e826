"""The tables of a registry: those of Comdb2 with its names and columns, and what is needed besides."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Float,
    ForeignKeyConstraint,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from tailrace.topology.site import DATABASE_CHARS_MAX, HOST_CHARS_MAX

METADATA: Final = MetaData()
_FOUR: Final = ("dbname", "host", "source_dbname", "source_host")


def _database(name: str, *, is_key: bool = False) -> Column[str]:
    return Column(name, String(DATABASE_CHARS_MAX), primary_key=is_key, nullable=False)


def _host(name: str, *, is_key: bool = False) -> Column[str]:
    return Column(name, String(HOST_CHARS_MAX), primary_key=is_key, nullable=False)


PHYSREPS: Final = Table(
    "comdb2_physreps",
    METADATA,
    _database("dbname", is_key=True),
    _host("host", is_key=True),
    Column("file", BigInteger),  # positions are ordered by file and offset in Comdb2, by generation and offset here
    Column("offset", BigInteger),
    Column("last_keepalive", DateTime),
    Column("state", String(60), nullable=False),
    Column("first_offset", BigInteger),
    Column("applied", BigInteger),
    Column("lag_bytes", BigInteger),
    Column("lag_s", Float),
    Column("is_source", Boolean, nullable=False),
    Column("is_stopped", Boolean, nullable=False),
)
CONNECTIONS: Final = Table(
    "comdb2_physrep_connections",
    METADATA,
    _database("dbname", is_key=True),
    _host("host", is_key=True),
    _database("source_dbname"),
    _host("source_host"),
    Column("is_reserved", Boolean, primary_key=True),  # so a node has one source, and one slot that waits for it
    UniqueConstraint(*_FOUR),
    ForeignKeyConstraint(["dbname", "host"], ["comdb2_physreps.dbname", "comdb2_physreps.host"], ondelete="CASCADE"),
)
SOURCES: Final = Table(
    "comdb2_physrep_sources",
    METADATA,
    *(_database(name, is_key=True) if "dbname" in name else _host(name, is_key=True) for name in _FOUR),
)
TUNABLES: Final = Table(
    "physrep_tunables", METADATA, Column("name", String(80), primary_key=True), Column("value", Text, nullable=False)
)
FANOUTS: Final = Table(
    "physrep_fanout_overrides",
    METADATA,
    _database("dbname", is_key=True),
    Column("fanout", Integer, nullable=False),
)
OWNER: Final = Table(
    "physrep_registry_owner",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("token", String(32), nullable=False),
)
"""The registry that had the tables last: one that lost its connection finds out whether another came in between."""
