"""Output that cannot be written."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


def printed_to(path: str, *command: str, unbuffered: str = "") -> subprocess.CompletedProcess[str]:
    with open(path, "w") as out:
        return subprocess.run(
            [sys.executable, "-m", "tailrace", *command],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            check=False,
        )


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_told_as_what_it_is(unbuffered: str) -> None:
    done = printed_to("/dev/full", "about", "--json", unbuffered=unbuffered)
    assert done.returncode == 1
    error = json.loads(done.stderr)["error"]
    assert error["code"] == "output.refused"
    assert error["message"] == "the output cannot be written: No space left on device"


def test_for_people() -> None:
    done = printed_to("/dev/full", "--version")
    assert done.returncode == 1
    assert done.stderr.startswith("error output.refused: the output cannot be written")
    assert "reading" not in done.stderr


def test_what_can_be_written_is(tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "out")
    assert printed_to(path, "--version").returncode == 0
    with open(path) as out:
        assert out.read().strip()


def test_nobody_who_reads_on_is_no_refusal() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as out:
        done = subprocess.run(
            [sys.executable, "-m", "tailrace", "--version"], stdout=out, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.stderr == ""
