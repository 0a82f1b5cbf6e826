"""The options of adaptors and functions, as people read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from re import Pattern
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from tailrace.adaptor.options import Bytes, FilePath, Seconds
from tailrace.limits import GIB, KIB, MIB
from tailrace.pipeline.problem import offered

_ALTERNATIVES_MAX: Final = 3
_KINDS: Final[dict[Any, str]] = {
    str: "text",
    int: "number",
    float: "number",
    Decimal: "number",
    bool: "true or false",
    SecretStr: "secret",
    Pattern: "pattern",
    list: "list",
    tuple: "list",
    Sequence: "list",
    dict: "mapping",
    Mapping: "mapping",
    Callable: "Python function",
}
PATH_SAMPLE: Final = "./data"
_SAMPLES: Final[dict[str, Any]] = {
    "duration": "10s",
    "size": "64MiB",
    "number": 1,
    "true or false": True,
    "list": [],
    "mapping": {},
}


@dataclass(frozen=True, slots=True)
class Option:
    """One option."""

    name: str
    kind: str
    """What can be written: text, number, duration, …"""
    is_required: bool
    default: Any
    """As it would be written in a file; None when there is none."""
    sample: Any
    """A value to begin with."""
    summary: str


def options_of(model: type[BaseModel]) -> Iterator[Option]:
    """The options of a model, those that must be given first. What is filled in by the pipeline itself is left out."""
    fields = [(name, model.model_fields[name]) for name in offered(model)]
    for name, field in sorted(fields, key=lambda each: not each[1].is_required()):
        yield _option(name, field)


def _option(name: str, field: FieldInfo) -> Option:
    kind = _kind(field)
    default = None if field.is_required() else _written(field.get_default(call_default_factory=True), kind)
    sample = field.examples[0] if field.examples else _sample(name, kind, field) if default is None else default
    summary = " ".join((field.description or "").split())
    return Option(name, kind, field.is_required(), default, sample, summary)


def _kind(field: FieldInfo) -> str:
    alias: Any
    for alias, kind in ((Seconds, "duration"), (Bytes, "size"), (FilePath, "path")):
        marker = alias.__metadata__[-1]
        if marker in field.metadata or any(marker in getattr(part, "__metadata__", ()) for part in _parts(field)):
            return kind
    shown = dict.fromkeys(_shown(part) for part in _parts(field) if part is not type(None))
    return " or ".join(shown) if len(shown) <= _ALTERNATIVES_MAX else "any value"


def _parts(field: FieldInfo) -> tuple[Any, ...]:
    """The alternatives of `A | B`, or the one type there is."""
    annotation: Any = field.annotation
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _shown(part: Any) -> str:
    if hasattr(part, "__metadata__"):
        return _shown(get_args(part)[0])
    if get_origin(part) is Literal:
        return " or ".join(map(str, get_args(part)))
    if isinstance(part, type) and issubclass(part, Enum):
        return " or ".join(str(each.value) for each in part)
    origin = get_origin(part) or part
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(_shown, get_args(part))))
    if isinstance(origin, type) and issubclass(origin, BaseModel):
        return "mapping"
    return _KINDS.get(origin, "any value")


def _written(value: Any, kind: str) -> Any:
    """A default as a file would say it."""
    if isinstance(value, BaseModel):
        return {name: _written(getattr(value, name), "") for name in type(value).model_fields}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Pattern):
        return value.pattern
    if isinstance(value, SecretStr):
        return None
    if isinstance(value, tuple | set | frozenset):
        return [_written(each, "") for each in value]
    if kind == "size" and isinstance(value, int):
        return _size(value)
    if kind == "duration" and isinstance(value, int | float):
        return f"{value * 1000:g}ms" if 0 < value < 1 else f"{value:g}s"
    return value


def _size(value: int) -> str:
    for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if value % size == 0:
            return f"{value // size}{unit}"
    return str(value)


def _sample(name: str, kind: str, field: FieldInfo) -> Any:
    if kind == "secret":
        return f"${{{name.upper()}}}"
    if not field.is_required():
        return None
    if name == "path" or kind == "path":
        return PATH_SAMPLE
    return _SAMPLES.get(kind, kind.partition(" or ")[0] if " or " in kind else name)
