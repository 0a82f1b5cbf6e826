"""The command itself: help, version, what it loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tailrace as package
from tailrace.cli.main import app
from tests.cli.conftest import Tailrace


def test_version(tailrace: Tailrace) -> None:
    assert tailrace("--version").out == package.__version__ + "\n"


def test_without_arguments_it_helps(tailrace: Tailrace) -> None:
    outcome = tailrace()
    assert "log" in outcome.out + outcome.err
    assert "offset" in outcome.out + outcome.err


@pytest.mark.parametrize("group", [group.name for group in app.registered_groups])
def test_every_command_has_help(tailrace: Tailrace, group: str) -> None:
    typer_group = next(found for found in app.registered_groups if found.name == group).typer_instance
    assert typer_group is not None
    for command in typer_group.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__
        assert command.callback.__doc__, name
        outcome = tailrace(group, name, "--help")
        assert outcome.status == 0
        assert command.callback.__doc__.split()[0] in outcome.out


def test_an_unknown_command_is_your_input(tailrace: Tailrace) -> None:
    assert tailrace("log", "currant").status == 2


def test_looking_at_a_log_loads_neither_spark_nor_arrow(shop: Path) -> None:
    program = (
        "import sys\n"
        "from tailrace.cli.main import run\n"
        f"sys.argv = ['tailrace', 'log', 'current', '--log', {str(shop)!r}]\n"
        "try:\n    run()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'pyspark', 'pyarrow', 'pandas', 'numpy', 'pydantic'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "9\n[]\n"


def test_a_reader_that_leaves_is_no_error(shop: Path) -> None:
    command = f"{sys.executable} -m tailrace log show 0 9 --log {shop} | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout == "offset    : 0\n"
    assert "Traceback" not in done.stderr
