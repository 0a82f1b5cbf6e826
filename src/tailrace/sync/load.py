"""Reading a file that declares sync: one with the key `sync` alone, or a node file that has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.errors import TailraceError
from tailrace.pipeline.declaration import Examined, examine_file
from tailrace.pipeline.parts import Parts
from tailrace.pipeline.problem import Problem, unknown_key
from tailrace.sync.form import SyncForm
from tailrace.sync.packages import check_packages


def load_sync(file: str, environment: Mapping[str, str] | None = None) -> SyncForm:
    """What a file says about sync."""
    begin = "write one; docs/guides/sync.md shows how"
    found: Examined[SyncForm] = examine_file(file, _assemble, environment, begin=begin)
    return found.checked(file, "mend the file, then try again")


def load_sync_to_run(file: str) -> SyncForm:
    """The same, for somebody who wants to exchange rows."""
    form = load_sync(file)
    check_packages("httpx", "starlette", "uvicorn", extra="sync")
    return form


def _assemble(said: Any, base: str) -> tuple[SyncForm | None, list[Problem]]:
    if isinstance(said, Mapping) and "node" in said:
        return _of_node(said, base)
    problems: list[Problem] = []
    parts = Parts(base, problems)
    if not isinstance(said, Mapping) or "sync" not in said:
        parts.add((), "should be a mapping with the key sync")
        return None, problems
    problems += [unknown_key((key,), ["sync"]) for key in said if key != "sync"]
    form: SyncForm | None = parts.options(SyncForm, said["sync"], ("sync",))
    return (None if problems else form), problems


def _of_node(said: Mapping[str, Any], base: str) -> tuple[SyncForm | None, list[Problem]]:
    from tailrace.node.form import assemble

    spec, problems = assemble(said, base)
    if spec is not None and spec.form.sync is None:
        raise TailraceError("config.invalid", "the node has no key `sync`", hint="docs/guides/sync.md shows one")
    return (None if spec is None else spec.form.sync), problems
