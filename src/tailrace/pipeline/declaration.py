"""Reading a file that declares something. Everything that is wrong with it is told at once, each with its line."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tailrace.errors import TailraceError
from tailrace.pipeline.places import FILE_BYTES_MAX, Tree, read_tree
from tailrace.pipeline.problem import Path, Problem

Declared = TypeVar("Declared")
Assemble = Callable[[Any, str], "tuple[Declared | None, list[Problem]]"]
"""Makes of plain keys and values what they declare, or says what is wrong; relative paths start at the second."""


@dataclass(frozen=True, slots=True, order=True)
class FileProblem:
    """Something wrong in a file."""

    file: str
    line: int
    column: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.text}"


@dataclass(frozen=True, slots=True)
class Examined(Generic[Declared]):
    """A file after a look at it: what it declares, or what is wrong."""

    spec: Declared | None
    problems: tuple[FileProblem, ...]

    def checked(self, file: str, hint: str) -> Declared:
        """What it declares; an error when something is wrong."""
        if self.spec is None:
            count = len(self.problems)
            what = f"{file} has {count} problem{'s' * (count > 1)}:\n" + "\n".join(map(str, self.problems))
            raise TailraceError("config.invalid", what, hint=hint)
        return self.spec


def examine_file(
    file: str, assemble: Assemble[Declared], environment: Mapping[str, str] | None, *, begin: str
) -> Examined[Declared]:
    """Look at a file without touching anything that it names. `begin` says how one comes to a first file."""
    text = _read(file, begin)
    if isinstance(text, Problem):
        return Examined(None, (FileProblem(file, 1, 1, str(text)),))
    tree = read_tree(text, os.environ if environment is None else environment)
    spec: Declared | None = None
    found: list[Problem] = []
    if tree.value is not None:
        spec, found = assemble(tree.value, os.path.dirname(os.path.abspath(file)))
    elif not tree.problems:
        found = [Problem((), f"the file is empty; {begin}")]
    problems = _located(file, tree, found)
    return Examined(None if problems else spec, problems)


def _read(file: str, begin: str) -> str | Problem:
    try:
        with open(file, "rb") as stream:
            raw = stream.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise TailraceError("config.invalid", f"there is no file {file}", hint=begin) from None
    except OSError as error:
        what = f"{file} cannot be read: {error.strerror}"
        raise TailraceError("config.invalid", what, hint="name a file that can be read") from None
    if len(raw) > FILE_BYTES_MAX:
        return Problem((), f"the file has more than {FILE_BYTES_MAX} bytes; this cannot be right")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Problem((), f"the file is not UTF-8: byte {error.start}")


def _located(file: str, tree: Tree, found: list[Problem]) -> tuple[FileProblem, ...]:
    """All problems in the order of the file. What is known to be broken is not complained about again."""
    broken = [problem.path for _, problem in tree.problems]
    problems = {FileProblem(file, mark.line, mark.column, str(problem)) for mark, problem in tree.problems}
    for problem in found:
        path, mark = tree.place(problem)
        if not any(path[: len(each)] == each for each in broken if each):
            problems.add(FileProblem(file, mark.line, mark.column, _without_values(tree, path, problem)))
    return tuple(sorted(problems))


def _without_values(tree: Tree, path: Path, problem: Problem) -> str:
    """What a variable holds is not printed."""
    for at, (written, value) in tree.variables.items():
        if at[: len(path)] == path and value and (value in str(problem) or repr(value)[1:-1] in str(problem)):
            return str(Problem(problem.path, f"what {written} stands for cannot be used here"))
    return str(problem)
