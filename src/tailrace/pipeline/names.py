"""The names of a pipeline and its writers. They become names of files, also where case does not count."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tailrace.errors import TailraceError
from tailrace.log.consumers import PREFIX
from tailrace.namespace import check_file_name

READING: Final = "_read"
"""The reader, where it stands among the writers; none of them can have this name."""
RUN: Final = "_run"
"""All of a run, in the same way."""


def name_problem(name: str, what: str) -> str | None:
    """Why a name cannot be used, None when it can."""
    try:
        check_file_name(name, what)
        check_file_name(PREFIX + name, what)
    except TailraceError as error:
        return error.what
    return None


@dataclass(slots=True)
class WriterNames:
    """The names of a pipeline's writers, each of them once."""

    _taken: set[str] = field(default_factory=set)

    def claim(self, name: str) -> str | None:
        """Take a name that was given. Returns why that cannot be, None when it can."""
        if name.startswith("_"):
            return "names that start with _ are reserved"
        if name.casefold() in self._taken:
            return "another writer has this name; each needs its own"
        self._taken.add(name.casefold())
        return name_problem(name, "writer")

    def free(self, adaptor: str) -> str:
        """Take a name for a writer that was given none: its adaptor's, with a number if need be."""
        name, number = adaptor, 1
        while name.casefold() in self._taken:
            number += 1
            name = f"{adaptor}-{number}"
        self._taken.add(name.casefold())
        return name
