"""Reading a node file whose node may be a replica."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.node.form import NodeSpec
from tailrace.node.form import assemble as assemble_node
from tailrace.pipeline.declaration import Examined, examine_file
from tailrace.pipeline.problem import Problem
from tailrace.topology.form import ReplicaSpec
from tailrace.topology.form import assemble as assemble_replica


def load_any(file: str, environment: Mapping[str, str] | None = None) -> NodeSpec | ReplicaSpec:
    """The node or the replica that a file declares."""
    begin = "write one; docs/guides/nodes.md and docs/guides/topology.md show how"
    found: Examined[NodeSpec | ReplicaSpec] = examine_file(file, _assemble, environment, begin=begin)
    return found.checked(file, "mend the file, then start it again")


def _assemble(said: Any, base: str) -> tuple[NodeSpec | ReplicaSpec | None, list[Problem]]:
    if isinstance(said, Mapping) and "replicate_from" in said:
        return assemble_replica(said, base)
    return assemble_node(said, base)
