"""How an error is told."""

from __future__ import annotations

from typing import Any

from tailrace.errors import TailraceError


def report_object(error: TailraceError) -> dict[str, Any]:
    """An error for programs."""
    place = error.place
    return {
        "code": error.code,
        "message": error.what,
        "file": place.file if place else None,
        "byte": place.byte if place else None,
        "offset": place.offset if place else None,
        "next": error.hint or None,
    }


def report_lines(error: TailraceError) -> list[str]:
    """An error for people: one sentence, and what to do next; several commands have a line each."""
    where = f" ({error.place})" if error.place else ""
    first, *others = error.hint.split("\n")
    following = [f"  next: {first}", *(f"        {line}" for line in others)] if error.hint else []
    return [f"error {error.code}: {error.what}{where}", *following]
