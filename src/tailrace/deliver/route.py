"""What both ways from a stretch of the log to a destination have in common: through columns and through DataFrames."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tailrace.deliver.clearing import Clear, ClearTable
from tailrace.deliver.passing import Passing
from tailrace.deliver.promise import Promise
from tailrace.deliver.redelivery import WriteSingly
from tailrace.log.identity import identity_of
from tailrace.spark.tasks import Receipt, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.adaptor.options import WriterOptions
    from tailrace.pipeline.spec import WriteSpec


@dataclass(slots=True)
class Delivered:
    """What became of a stretch."""

    written: Counter[str] = field(default_factory=Counter)
    schemas: dict[str, str] = field(default_factory=dict)
    """What the writer knows of the fields now."""
    news: list[str] = field(default_factory=list)

    def receipt(self) -> Receipt:
        """As a task would tell it that found nothing refused."""
        told = {"written": dict(self.written), "schemas": self.schemas, "news": self.news}
        return {**told, "aside": [], "refused": None}


def write_singly(spec: WriteSpec, log: str, options: WriterOptions, promise: Promise, passing: Passing) -> WriteSingly:
    return WriteSingly(log, spec.name, options, spec.on_schema_change, spec.on_error, promise.schemas, passing)


def clear_in_task(
    session: SparkSession, name: str, options: WriterOptions, clear: Clear, passing: Passing
) -> list[str]:
    (receipt,) = run_tasks(session, name, ClearTable(options, passing.rewound), [clear]).all()
    news: list[str] = receipt["news"]
    return news


def options_of(spec: WriteSpec, log: str) -> Any:
    """The writer's options; where the adaptor keeps offsets, with the name to keep them under: whose they are, and of
    which log."""
    if "consumer" in type(spec.options).model_fields:
        return spec.options.model_copy(update={"consumer": f"{spec.name}@{identity_of(log)}"})
    return spec.options
