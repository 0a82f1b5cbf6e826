"""Looking at what a file declares, from outside: a pipeline, a node or a replica, whether it runs or not."""

from __future__ import annotations

import os
from collections.abc import Callable

import yaml

from tailrace.observe.model import Overview

Look = Callable[[], Overview]


def look_at(path: str) -> Look:
    """How to look, again and again. Raises what is wrong with the file."""
    return _look_at_node(path) if _is_node(path) else _look_at_pipeline(path)


def _look_at_pipeline(path: str) -> Look:
    from tailrace.observe.pipelines import look_at_pipeline
    from tailrace.pipeline.load import load

    return look_at_pipeline(load(path))


def _look_at_node(path: str) -> Look:
    from tailrace.node.status import read_status
    from tailrace.observe.logs import LogLook
    from tailrace.observe.nodes import overview_of_node, overview_of_replica
    from tailrace.topology.load import load_any

    form = load_any(path).form
    log = LogLook(os.path.join(form.data, "log"))

    def look() -> Overview:
        told = read_status(form.data)
        if told.get("kind") == "replica":
            return overview_of_replica(form.node, log, told)
        return overview_of_node(form.node, log, told)

    return look


def _is_node(path: str) -> bool:
    try:
        with open(path, encoding="utf-8") as stream:
            said = yaml.safe_load(stream)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return False  # whoever reads it as a pipeline says what is wrong with it
    return isinstance(said, dict) and "node" in said and "pipeline" not in said
