"""Endpoints: one end of a pipeline as it is named in Python, `sqlite("shop.db", poll="100ms")`.

The same endpoint can be read or written, so its options are validated only where it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tailrace.errors import TailraceError


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An adaptor by name, with what was said about it."""

    adaptor: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Not validated yet, and not printed: there may be secrets among them."""


class EndpointMaker(Protocol):
    """Makes endpoints of one adaptor."""

    def __call__(self, *first: Any, **options: Any) -> Endpoint: ...


def endpoint(adaptor: str, *, first: str | None = None) -> EndpointMaker:
    """What an adaptor's package offers under its own name; `first` is the option that needs no name."""

    def make(*given: Any, **options: Any) -> Endpoint:
        allowed = 0 if first is None else 1
        if len(given) > allowed:
            what = f"{adaptor}(...) takes {allowed} value without a name, {len(given)} were given"
            raise TailraceError("config.invalid", what, hint=f"tailrace about {adaptor}")
        if not given or first is None:
            return Endpoint(adaptor, options)
        if first in options:
            what = f"{adaptor}(...) was given {first} twice, with and without its name"
            raise TailraceError("config.invalid", what, hint="give it once")
        return Endpoint(adaptor, {first: given[0], **options})

    make.__name__ = make.__qualname__ = adaptor
    make.__doc__ = f"An end of a pipeline that is read or written through the adaptor {adaptor}."
    return make
