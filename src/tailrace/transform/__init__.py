"""Functions: what happens to messages between the log and a writer."""

from tailrace.transform.making import omit, opfilter, pick, pretty, python, remap, rename, skip, sql

__all__ = ["omit", "opfilter", "pick", "pretty", "python", "remap", "rename", "skip", "sql"]
