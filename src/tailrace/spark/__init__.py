"""How Spark is started and used; nothing else knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(session: SparkSession) -> None:
    """Let a session read logs: `session.read.format("tailrace").load("shop-log")`."""
    from tailrace.spark import datasource

    datasource.register(session)
