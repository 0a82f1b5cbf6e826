"""Pipelines: declared in Python or in a file, checked, and run."""

from tailrace.pipeline.declare import Pipeline

__all__ = ["Pipeline"]
