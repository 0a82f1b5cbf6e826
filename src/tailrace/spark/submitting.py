"""What the JVM is told when it starts. Settings may be secrets, and what stands on a command line everybody can see; so
they are in a file that only we can read, in memory where the system can do that, so that a crash leaves nothing."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
"""Where PySpark looks for what to add to the command line."""


@contextmanager
def submitted(settings: Mapping[str, str]) -> Iterator[tuple[int, ...]]:
    """Within it PySpark starts a JVM with these settings. Gives the open files that the JVM must inherit."""
    before = os.environ.get(_ARGUMENTS)
    text = "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())
    with _private_file(text.encode("ascii")) as (path, files):
        ours = f"--properties-file {shlex.quote(path)} --load-spark-defaults"
        os.environ[_ARGUMENTS] = f"{ours} {before or 'pyspark-shell'}"
        try:
            yield files
        finally:
            del os.environ[_ARGUMENTS]
            if before is not None:
                os.environ[_ARGUMENTS] = before


@contextmanager
def _private_file(content: bytes) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Its path, and which open file must be inherited for the path to lead there."""
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("tailrace"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}", (file.fileno(),)
        return
    with tempfile.NamedTemporaryFile(prefix="tailrace-", suffix=".conf") as named:
        named.write(content)
        named.flush()
        yield named.name, ()


def _escaped(text: str) -> str:
    """A text as Java's properties have it, every sign that could mean something as its number."""
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign in "._-/,") else _numbered(sign) for sign in text)


def _numbered(sign: str) -> str:
    units = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
