"""What the JVM is told when it starts is in a file of ours, and nowhere else."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess

import pytest

from tailrace.spark.submitting import submitted

SETTINGS = {"spark.a": "plain", "spark.b c": " = : # \\ \n ü😀", "spark.empty": ""}


def text_of(written: str) -> str:
    """The inverse of Java's escapes."""
    return written.encode().decode("unicode_escape").encode("utf-16", "surrogatepass").decode("utf-16")


@pytest.mark.parametrize("before", [None, "--name x pyspark-shell"])
@pytest.mark.parametrize("in_memory", [True, False])
def test_settings_are_in_a_file_while_it_starts(
    monkeypatch: pytest.MonkeyPatch, before: str | None, in_memory: bool
) -> None:
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create")  # which not every system has
    if before is None:
        monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    else:
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", before)
    with pytest.raises(RuntimeError, match="does not start"), submitted(SETTINGS) as inherited:
        option, path, *rest = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
        assert option == "--properties-file"
        assert rest == ["--load-spark-defaults", *shlex.split(before or "pyspark-shell")]
        assert in_memory == bool(inherited)
        assert in_memory or stat.S_IMODE(os.stat(path).st_mode) == 0o600
        read = subprocess.run(["/bin/cat", path], pass_fds=inherited, capture_output=True, text=True, check=True)
        pairs = [line.partition("=") for line in read.stdout.splitlines()]
        assert {text_of(key): text_of(value) for key, _, value in pairs} == SETTINGS
        raise RuntimeError("it does not start")
    assert os.environ.get("PYSPARK_SUBMIT_ARGS") == before
    assert not os.path.exists(path)
