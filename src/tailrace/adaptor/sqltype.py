"""SQL types: what a field was declared as in a database, where its Arrow type does not say it.

A field's metadata names the type as PostgreSQL does (`uuid`, `jsonb`, `numeric`, `interval`, `uuid[]`), whichever
database it came from; a writer that knows the name makes a column of that type, others take the Arrow type.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

SQL_METADATA: Final = b"tailrace.sql"


def declared(field: pa.Field[Any]) -> str | None:
    """The SQL type that a field came with, None when nobody said."""
    name = (field.metadata or {}).get(SQL_METADATA)
    return None if name is None else name.decode()


def with_declared(field: pa.Field[Any], sql_type: str | None) -> pa.Field[Any]:
    """A field that says what it was declared as."""
    if sql_type is None:
        return field
    metadata: dict[Any, Any] = {**(field.metadata or {}), SQL_METADATA: sql_type.encode()}
    return field.with_metadata(metadata)
