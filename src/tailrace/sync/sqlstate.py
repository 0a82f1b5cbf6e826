"""PostgreSQL's states of what failed, and whom each is about: a row, other rows, or everything."""

from __future__ import annotations

from typing import Final

MET_OTHERS: Final = ("40001", "40P01")
"""Of a transaction that failed only because of others at the same time."""
REFERENCES: Final = ("23503", "23001")
"""Of a foreign key that does not hold."""
COLLISION: Final = "23505"
"""Of a value that another row has already."""
_SERVER: Final = ("08", "40", "53", "57", "58", "XX")
"""Classes that tell of the connection, of the server, or of what others do at the same time."""
_EVERYTHING: Final = ("25", "42", "55P03")
"""What counts for any row: a database that only reads, a statement that does not fit the tables, a lock in the way. If
a function of somebody raises one of these, it means the row."""
_RIGHTS: Final = "42501"
"""Row-level security says it of a row."""
_RAISE: Final = "exec_stmt_raise"
"""Where the server says that an error was made, if it was by RAISE."""


def is_about_row(error: BaseException | None) -> bool:
    """Whether a statement failed because of the row that it was about."""
    state = str(getattr(error, "sqlstate", None) or "")
    if not state or state.startswith(_SERVER):
        return False
    was_raised = getattr(getattr(error, "diag", None), "source_function", None) == _RAISE
    return was_raised or state == _RIGHTS or not state.startswith(_EVERYTHING)
