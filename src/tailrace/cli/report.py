"""How an error is told to people."""

from __future__ import annotations

from tailrace.errors import TailraceError


def report_lines(error: TailraceError) -> list[str]:
    """One sentence, and what to do next; several commands have a line each."""
    where = f" ({error.place})" if error.place else ""
    first, *others = error.hint.split("\n")
    following = [f"  next: {first}", *(f"        {line}" for line in others)] if error.hint else []
    return [f"error {error.code}: {error.what}{where}", *following]
