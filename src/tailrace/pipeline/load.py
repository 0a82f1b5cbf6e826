"""Reading a pipeline file. Everything that is wrong with it is told at once, each with its line."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.errors import TailraceError
from tailrace.pipeline.assemble import assemble
from tailrace.pipeline.places import FILE_BYTES_MAX, Tree, read_tree
from tailrace.pipeline.problem import Path, Problem
from tailrace.pipeline.spec import PipelineSpec


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
class Examined:
    """A pipeline file after a look at it: the pipeline, or what is wrong."""

    spec: PipelineSpec | None
    problems: tuple[FileProblem, ...]


def load(file: str, environment: Mapping[str, str] | None = None) -> PipelineSpec:
    """The pipeline that a file declares."""
    examined = examine(file, environment)
    if examined.spec is None:
        count = len(examined.problems)
        what = f"{file} has {count} problem{'s' * (count > 1)}:\n" + "\n".join(map(str, examined.problems))
        raise TailraceError("config.invalid", what, hint=f"mend the file, then: tailrace check {shlex.quote(file)}")
    return examined.spec


def examine(file: str, environment: Mapping[str, str] | None = None) -> Examined:
    """Look at a file without touching anything that it names."""
    text = _read(file)
    if isinstance(text, Problem):
        return Examined(None, (FileProblem(file, 1, 1, str(text)),))
    tree = read_tree(text, os.environ if environment is None else environment)
    spec: PipelineSpec | None = None
    found: list[Problem] = []
    if tree.value is not None:
        spec, found = assemble(tree.value, os.path.dirname(os.path.abspath(file)))
    elif not tree.problems:
        found = [Problem((), "the file is empty; `tailrace init SOURCE SINK` writes one to begin with")]
    problems = _located(file, tree, found)
    return Examined(None if problems else spec, problems)


def _read(file: str) -> str | Problem:
    try:
        with open(file, "rb") as stream:
            raw = stream.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        hint = f"tailrace init SOURCE SINK --file {shlex.quote(file)}"
        raise TailraceError("config.invalid", f"there is no file {file}", hint=hint) from None
    except OSError as error:
        what = f"{file} cannot be read: {error.strerror}"
        raise TailraceError("config.invalid", what, hint="name a file that can be read") from None
    if len(raw) > FILE_BYTES_MAX:
        return Problem((), f"the file has more than {FILE_BYTES_MAX} bytes; this is no pipeline")
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
