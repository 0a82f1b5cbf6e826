"""Looking at what a file declares, from outside: a pipeline, a node, a replica or sync, whether it runs or not."""

from __future__ import annotations

import os
from collections.abc import Callable

import yaml

from tailrace.observe.model import Overview

Look = Callable[[], Overview]


def look_at(path: str) -> Look:
    """How to look, again and again. Raises what is wrong with the file."""
    said = _keys(path)
    if "pipeline" in said:
        return _look_at_pipeline(path)
    if "node" in said:
        return look_at_node(path)
    return look_at_sync(path) if "sync" in said else _look_at_pipeline(path)


def look_at_node(path: str) -> Look:
    """The same, of a file that is one of a node or a replica."""
    from tailrace.topology.load import load_any

    form = load_any(path).form
    return look_into(form.data, form.node)


def look_into(data: str, name: str | None = None) -> Look:
    """How to look at the node or replica that keeps what it has in a directory."""
    from tailrace.node.status import read_status
    from tailrace.observe.logs import LogLook
    from tailrace.observe.nodes import overview_of_node, overview_of_replica
    from tailrace.observe.trees import TreeLook

    log, tree = LogLook(os.path.join(data, "log")), TreeLook(data)

    def look() -> Overview:
        told = read_status(data)
        if told.get("kind") == "replica":
            return overview_of_replica(name or told["name"], log, told)
        known, unknown = (tree.read(), tree.wrong()) if told["is_running"] else ((), None)
        return overview_of_node(name or os.path.basename(os.path.abspath(data)), log, told, known, unknown)

    return look


def look_at_sync(path: str) -> Look:
    """How to look at the database whose tables a file syncs."""
    from tailrace.observe.syncruns import read_run, run_of_node, state_directory
    from tailrace.observe.syncs import overview_of_sync
    from tailrace.sync.load import load_sync
    from tailrace.sync.opening import opened

    form = load_sync(path)
    state, data = state_directory(path, form.state), _data_of_node(path)

    def look() -> Overview:
        with opened(form) as store:
            run = read_run(state, str(store.node_id))
            if data is not None and (run is None or run.runs_as is None):
                run = run_of_node(data) or run
            return overview_of_sync(path, store, run)

    return look


def _data_of_node(path: str) -> str | None:
    """Where the node says how it is, if the file is one of a node."""
    from tailrace.topology.load import load_any

    return load_any(path).form.data if "node" in _keys(path) else None


def _look_at_pipeline(path: str) -> Look:
    from tailrace.observe.pipelines import look_at_pipeline
    from tailrace.pipeline.load import load

    return look_at_pipeline(load(path))


def _keys(path: str) -> set[object]:
    try:
        with open(path, encoding="utf-8") as stream:
            said = yaml.safe_load(stream)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return set()  # whoever reads it as a pipeline says what is wrong with it
    return set(said) if isinstance(said, dict) else set()
