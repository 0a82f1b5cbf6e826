"""Documentation is tested: its code runs, its links lead somewhere, and it leaves no command or error code out."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from tailrace.cli.main import app
from tailrace.errors import CODES

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PAGES_WITH_PYTHON = [page for page in PAGES if "```python" in page.read_text()]


def python_blocks(page: Path) -> Iterator[str]:
    yield from re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize("page", PAGES_WITH_PYTHON, ids=lambda page: page.name)
def test_code_blocks_run(page: Path, tmp_path: Path) -> None:
    program = "\n".join(python_blocks(page))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    missing = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert missing == []


def command_names(group: typer.Typer) -> Iterator[str]:
    for command in group.registered_commands:
        assert command.callback is not None
        yield command.name or command.callback.__name__


def test_every_command_has_its_line() -> None:
    text = (ROOT / "docs/reference/command-line.md").read_text()
    commands = [f"tailrace {name}" for name in command_names(app)]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        commands += [f"tailrace {group.name} {name}" for name in command_names(group.typer_instance)]
    assert [command for command in commands if f"`{command}" not in text] == []


def test_every_error_code_has_its_line() -> None:
    section = (ROOT / "docs/operations.md").read_text().split("## Error codes")[1]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    for code, status in CODES.items():
        row = next((row for row in rows if f"`{code}`" in row), None)
        assert row is not None, code
        assert row.split("|")[2].strip() == str(int(status)), code


def test_the_example_of_the_log_runs(tmp_path: Path) -> None:
    example = ROOT / "examples" / "append_and_read.py"
    for _ in range(2):
        subprocess.run([sys.executable, "-W", "error", str(example)], cwd=tmp_path, check=True, capture_output=True)
