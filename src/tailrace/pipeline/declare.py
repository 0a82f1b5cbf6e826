"""Declaring a pipeline in Python:

    Pipeline("orders").read(sqlite("shop.db")).through(omit("email")).write(lake("lake"))

Functions belong to the `write` that follows them. Nothing is checked or touched before `spec`, `check` or `run`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tailrace.errors import TailraceError

if TYPE_CHECKING:
    import re

    from tailrace.adaptor.endpoint import Endpoint
    from tailrace.pipeline.run import Summary
    from tailrace.pipeline.spec import PipelineSpec
    from tailrace.transform.options import FunctionOptions


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline as it is declared; each call returns a new one, so one beginning can have several ends."""

    name: str
    _: KW_ONLY
    log: str | os.PathLike[str] | None = None
    """The log's directory, `.tailrace/NAME` when nothing is said."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """As in a pipeline file: `{"poll": "100ms", "keep_bytes": "10GB"}`."""
    source: Mapping[str, Any] | None = field(default=None, repr=False)
    destinations: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    waiting: tuple[FunctionOptions, ...] = field(default=(), repr=False)
    """Functions for the next `write`."""

    def read(
        self, source: Endpoint, *, namespace: str | re.Pattern[str] | None = None, parallel: int | None = None
    ) -> Pipeline:
        """Read the namespaces of a source in which a pattern is found."""
        if self.source is not None:
            what = f"pipeline {self.name} reads from two sources; it can have one"
            raise TailraceError("config.invalid", what, hint="make a pipeline for each source")
        return replace(self, source=_said(source, namespace=namespace, parallel=parallel))

    def through(self, *functions: FunctionOptions) -> Pipeline:
        """Let the messages of the next `write` go through functions."""
        return replace(self, waiting=(*self.waiting, *functions))

    def write(
        self,
        destination: Endpoint,
        *,
        name: str | None = None,
        namespace: str | re.Pattern[str] | None = None,
        **options: Any,
    ) -> Pipeline:
        """Write to a destination. `options` are those of a writer in a pipeline file: `on_error`, `every`, …"""
        said = _said(destination, name=name, namespace=namespace, through=list(self.waiting) or None, **options)
        return replace(self, destinations=(*self.destinations, said), waiting=())

    def spec(self) -> PipelineSpec:
        """Check everything that can be checked without touching anything. Relative paths start where the process is."""
        from tailrace.pipeline.assemble import assemble
        from tailrace.pipeline.problem import Problem

        said = {
            "pipeline": self.name,
            "log": None if self.log is None else os.fspath(self.log),
            "read": self.source,
            "write": self.destinations or None,
            "settings": self.settings,
        }
        spec, problems = assemble(said, os.getcwd())
        if self.waiting:
            problems.append(Problem(("through",), "no write follows these functions"))
        if spec is None or problems:
            what = f"pipeline {self.name} has {len(problems)} problem{'s' * (len(problems) > 1)}:\n"
            hint = "correct the declaration; `tailrace about NAME` shows what can be said"
            raise TailraceError("config.invalid", what + "\n".join(map(str, problems)), hint=hint)
        return spec

    def check(self) -> None:
        """Raise an error that tells everything that is wrong with the declaration."""
        self.spec()

    def run(self, until: str = "stopped", **options: Any) -> Summary:
        """Run the pipeline in this process, until it is `stopped`, `once`, or until it has `caught up`; the other
        options are those of `tailrace.pipeline.run.run`."""
        from tailrace.pipeline.run import Until, run

        known = [each.value for each in Until]
        if until not in known:
            what = f"pipeline {self.name} cannot run until {until!r}"
            raise TailraceError("config.invalid", what, hint=f"say one of {', '.join(known)}")
        return run(self.spec(), Until(until), **options)


def _said(endpoint: Endpoint, **keys: Any) -> dict[str, Any]:
    """What the same end would say in a pipeline file."""
    return {endpoint.adaptor: endpoint.options, **{key: value for key, value in keys.items() if value is not None}}
