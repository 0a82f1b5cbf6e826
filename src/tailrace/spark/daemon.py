"""The process that Spark forks its Python workers from: it imports what they all need once, before it forks.

Arrow looks for pandas when it makes its first array, which takes longer than everything else together, and nothing of
ours needs it. So Arrow is told that there is none. Code of the user's own that works on DataFrames may want pandas;
pipelines with such code use Spark's own daemon.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any

import pyarrow
import pyarrow.compute
import pyspark.daemon
import pyspark.worker

import tailrace.adaptor.registry
import tailrace.deliver.task
import tailrace.source.task

PRELOADED = (pyarrow.compute, pyspark.worker, tailrace.adaptor.registry, tailrace.deliver.task, tailrace.source.task)


class _Missing(MetaPathFinder):
    """Finds no pandas, and nothing else either."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("left out", name=name)


def leave_out_pandas() -> None:
    """Let Arrow look for pandas now, and not find it."""
    missing = _Missing()
    sys.meta_path.insert(0, missing)
    try:
        pyarrow.scalar(0)
    finally:
        sys.meta_path.remove(missing)


if __name__ == "__main__":
    leave_out_pandas()
    pyspark.daemon.manager()
