"""A YAML file as plain values, with the place of each, so that every problem can be shown where it is.

YAML 1.2's core types only: `no`, `on` and `12:30` are text. What variables hold is put in after parsing and stays text,
so it cannot become YAML.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from tailrace.limits import KIB
from tailrace.pipeline.problem import Path, Problem
from tailrace.pipeline.variables import VariableProblem, substitute

FILE_BYTES_MAX: Final = 256 * KIB
NODES_MAX: Final = 20_000
"""Values in a file, those behind aliases counted each time."""
DEPTH_MAX: Final = 32
_TAG: Final = "tag:yaml.org,2002:"
_TAGGED: Final = "a tag is not understood here; text that begins with ! needs quotes"
"""Which tag is not told, for it may be the beginning of a password."""


class _Loader(yaml.SafeLoader):
    """Only what YAML 1.2's core schema knows."""


_Loader.yaml_implicit_resolvers = {}
for _kind, _pattern, _first in (
    ("null", r"~|null|", "~n"),
    ("bool", r"true|false", "tf"),
    ("int", r"[-+]?[0-9]+|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
):
    _Loader.add_implicit_resolver(
        _TAG + _kind, re.compile(rf"^(?:{_pattern})$"), [*_first, *([""] * (_kind == "null"))]
    )


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in a file, counted from 1."""

    line: int
    column: int


@dataclass(slots=True)
class Tree:
    """The values of a file and their places."""

    value: Any = None
    keys: dict[Path, Mark] = field(default_factory=dict)
    scalars: dict[Path, Mark] = field(default_factory=dict)
    variables: dict[Path, tuple[str, str]] = field(default_factory=dict)
    """Values that came from the environment: as written, and what became of it."""
    problems: list[tuple[Mark, Problem]] = field(default_factory=list)

    def place(self, problem: Problem) -> tuple[Path, Mark]:
        """The innermost value that a problem's path leads to, and where it is written."""
        path: Path = ()
        for part in problem.path:
            if (*path, part) in self.keys or (*path, part) in self.scalars:
                path = (*path, part)
        first, second = (self.keys, self.scalars) if problem.is_about_key else (self.scalars, self.keys)
        return path, first.get(path) or second.get(path) or Mark(1, 1)


def read_tree(text: str, environment: Mapping[str, str]) -> Tree:
    """The values of a YAML text. Problems are kept in the tree; its value is None when there is nothing else."""
    tree = Tree()
    try:
        node = _compose(text)
        if node is not None:
            _Reading(tree, environment).read(node)
    except yaml.YAMLError as error:
        tree.value = None
        tree.problems.append(_syntax(error, text))
    return tree


def _compose(text: str) -> Any:
    """The node at the top. How deep and how many is seen before anything is built."""
    depth = nodes = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        nodes += isinstance(event, yaml.NodeEvent)
        if depth > DEPTH_MAX or nodes > NODES_MAX:
            raise _too_much(event.start_mark)
    return yaml.compose(text, Loader=_Loader)


def _too_much(mark: Any) -> yaml.YAMLError:
    what = f"too much for a pipeline: {NODES_MAX} values, nested {DEPTH_MAX} deep, are allowed"
    return yaml.MarkedYAMLError(problem=what, problem_mark=mark)


class _Reading:
    """One walk through the nodes of a file."""

    def __init__(self, tree: Tree, environment: Mapping[str, str]) -> None:
        self.tree = tree
        self.environment = environment
        self.nodes = 0

    def read(self, node: Any) -> None:
        self.tree.value = self._value(node, ())

    def _value(self, node: Any, path: Path) -> Any:
        self.nodes += 1
        if self.nodes > NODES_MAX or len(path) > DEPTH_MAX:
            raise _too_much(node.start_mark)
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            self.tree.keys.setdefault(path, _mark(node))
            return [self._value(each, (*path, at)) for at, each in enumerate(node.value)]
        self.tree.scalars[path] = _mark(node)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        self._problem(node, path, _TAGGED)
        return None

    def _mapping(self, node: Any, path: Path) -> dict[str, Any]:
        self.tree.keys.setdefault(path, _mark(node))
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._problem(key_node, path, "a key should be a word")
                continue
            key = key_node.value
            if key in found:
                first = self.tree.keys[(*path, key)].line
                self._problem(key_node, (*path, key), f"the key {key!r} is here twice, first in line {first}")
                continue
            self.tree.keys[(*path, key)] = _mark(key_node)
            found[key] = self._value(value_node, (*path, key))
        return found

    def _scalar(self, node: Any, path: Path) -> Any:
        text: str = node.value
        kind = node.tag.removeprefix(_TAG)
        try:
            if kind == "str":
                return self._text(text, path) if "$" in text else text
            if kind in ("null", "bool"):
                return None if kind == "null" else {"true": True, "false": False}[text]
            if kind in ("int", "float"):
                return int(text, 0 if text.startswith("0x") else 10) if kind == "int" else float(text)
        except VariableProblem as error:
            self._problem(node, path, str(error))
            return text
        except (ValueError, KeyError):
            self._problem(node, path, f"this is no {kind}")
            return None
        self._problem(node, path, _TAGGED)
        return None

    def _text(self, text: str, path: Path) -> str:
        value = substitute(text, self.environment)
        if "${" in text:
            self.tree.variables[path] = (text, value)
        return value

    def _problem(self, node: Any, path: Path, text: str) -> None:
        self.tree.problems.append((_mark(node), Problem(path, text, is_about_key=True)))


def _mark(node: Any) -> Mark:
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)


def _syntax(error: yaml.YAMLError, text: str) -> tuple[Mark, Problem]:
    found: Any = getattr(error, "problem_mark", None)
    if found is None:
        position = getattr(error, "position", 0)
        before = text[:position] if isinstance(position, int) else ""
        mark = Mark(before.count("\n") + 1, len(before) - before.rfind("\n"))
        return mark, Problem((), f"character {position} of the file cannot be in a YAML file")
    said = str(getattr(error, "problem", "") or "this is not YAML")
    lines = text.split("\n")
    if said == "found unexpected end of stream":
        found, said = getattr(error, "context_mark", None) or found, "what begins here never ends"
    elif said.startswith("found undefined alias"):
        said = "there is no anchor of this name; text that begins with * needs quotes"
    elif "'\\t'" in said:
        said = "a tab is no indentation in YAML; use spaces"
    elif said == "but found another document":
        said = "one file holds one pipeline; remove what follows ---"
    elif "${" in lines[min(found.line, len(lines) - 1)]:
        said += "; inside { } and [ ] values with ${...} need quotes"
    return Mark(found.line + 1, found.column + 1), Problem((), said)
