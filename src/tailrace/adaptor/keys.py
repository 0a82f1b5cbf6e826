"""The key of a destination's table."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.errors import TailraceError


def no_unique_key(table: str, key: Sequence[str], namespace: str, cure: str) -> TailraceError:
    """A table in which the key of a namespace identifies nothing. `cure` is the statement that makes it do so."""
    what = f"table {table} has no unique index on {', '.join(key)}, the key of {namespace}"
    hint = f"{cure}; or say with `key` which columns are it. Also remove a key that the source's table has no longer"
    return TailraceError("destination.refused", what, hint=hint)
