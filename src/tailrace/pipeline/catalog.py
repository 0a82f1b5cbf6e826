"""What there is to build pipelines of: every adaptor and function with its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tailrace.adaptor import registry as adaptors
from tailrace.pipeline.describe import Option, options_of
from tailrace.transform import registry as functions

Use = Literal["read", "write", "through"]


@dataclass(frozen=True, slots=True)
class Described:
    """An adaptor or a function."""

    name: str
    kind: Literal["adaptor", "function"]
    summary: str
    options: dict[Use, tuple[Option, ...]]
    """By what it can be used for."""


def catalog() -> tuple[list[Described], list[Described]]:
    """All adaptors and all functions, by name. One that cannot be loaded here says why."""
    return [_adaptor_or_why(name) for name in adaptors.names()], [describe_function(name) for name in functions.names()]


def describe_adaptor(name: str) -> Described:
    found = adaptors.find(name)
    options: dict[Use, tuple[Option, ...]] = {}
    if found.reader is not None:
        options["read"] = tuple(options_of(found.reader))
    if found.writer is not None:
        options["write"] = tuple(options_of(found.writer))
    return Described(name, "adaptor", found.summary, options)


def describe_function(name: str) -> Described:
    found = functions.find(name)
    return Described(name, "function", found.summary, {"through": tuple(options_of(found))})


def _adaptor_or_why(name: str) -> Described:
    try:
        return describe_adaptor(name)
    except ImportError as error:
        return Described(name, "adaptor", f"cannot be loaded here: {error}", {})
