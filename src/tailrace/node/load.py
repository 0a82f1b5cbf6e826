"""Reading a node file."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.node.form import NodeSpec, assemble
from tailrace.pipeline.declaration import examine_file


def load_node(file: str, environment: Mapping[str, str] | None = None) -> NodeSpec:
    """The node that a file declares."""
    begin = "write one; docs/guides/nodes.md shows how"
    return examine_file(file, assemble, environment, begin=begin).checked(file, "mend the file, then start it again")
