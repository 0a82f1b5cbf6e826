"""Pipelines: declared in Python or YAML, run, watched and stopped."""
