"""The process that Spark forks its Python workers from: it imports what they all need once, before it forks."""

from __future__ import annotations

import pandas
import pyarrow.compute
import pyspark.daemon
import pyspark.sql.pandas.serializers
import pyspark.worker

import tailrace.adaptor.registry
import tailrace.deliver.task
import tailrace.source.task

PRELOADED = (
    pandas,
    pyarrow.compute,
    pyspark.sql.pandas.serializers,
    pyspark.worker,
    tailrace.adaptor.registry,
    tailrace.deliver.task,
    tailrace.source.task,
)

if __name__ == "__main__":
    pyspark.daemon.manager()
