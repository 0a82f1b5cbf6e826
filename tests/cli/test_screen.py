"""`tailrace top` on terminals of all sizes."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from rich.console import Console, Group

from tailrace.cli.screen import screen
from tailrace.cli.top import _watch
from tailrace.errors import TailraceError
from tailrace.observe.model import Health, Kind, Lag, LogPart, NamespacePart, Overview, Part, TreeNode, Wrong

WRONG = Wrong("destination.refused", "writer office stopped before offset 507", "look\nretry\nacknowledge")


def terminal(width: int, height: int) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, color_system=None, width=width, height=height)


def overview(writers: int = 3, tables: int = 60, nodes: int = 0) -> Overview:
    """The last of the writers is stuck."""
    parts = [
        Part(Kind.WRITER, f"writer{number}", "sqlite /data/x.db", "running", Health.GOOD, 500, Lag(7, 7000, 3.0), 1.5)
        for number in range(writers - 1)
    ]
    stuck = Part(Kind.WRITER, "office", "lake /lake", "stopped", Health.BAD, 5, Lag(495, 1, 60.0), wrong=WRONG)
    return Overview(
        "shop",
        "pipeline",
        0.0,
        True,
        "process 1",
        log=LogPart("log", 0, 501, 501, 9000, {f"consumer{number}": 9000 for number in range(50)}),
        namespaces=tuple(NamespacePart(f"main.table{n}", 1, 1, n, "copy", 1, 1, 1, 1) for n in range(tables)),
        parts=(*parts, stuck),
        tree=tuple(TreeNode(f"node{n}", None, "shop", 0, "Active", Health.GOOD, "") for n in range(nodes)),
    )


def shown(found: Overview, width: int, height: int, error: TailraceError | None = None) -> list[str]:
    console = terminal(width, height)
    with console.capture() as capture:
        console.print(Group(*screen(found, console, height, error)))
    return capture.get().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 16), (200, 60)])
@pytest.mark.parametrize("writers", [3, 300])
def test_what_is_wrong_is_on_the_screen(width: int, height: int, writers: int) -> None:
    lines = shown(overview(writers, nodes=500), width, height)
    text = "\n".join(lines)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    assert "writer office stopped before offset 507" in text
    assert "  next: look" in text
    row = next(line for line in lines if line.startswith("│") and "office" in line)
    assert "stopped" in row
    assert "495" in row


def test_what_there_is_no_room_for_is_said() -> None:
    text = "\n".join(shown(overview(300), 80, 24))
    assert "more; where, lag bytes" in text
    many = Overview("shop", "pipeline", 0.0, True, wrong=(WRONG,) * 100)
    assert "and more: tailrace status has all" in "\n".join(shown(many, 80, 24))


def test_a_large_terminal_shows_everything() -> None:
    text = "\n".join(shown(overview(tables=2, nodes=2), 200, 60))
    for said in ("/data/x.db", "7.0 kB", "main.table1", "node1", "POSITION"):
        assert said in text
    assert "--json has all" not in text


@pytest.mark.parametrize("size", [(20, 5), (1, 1)])
def test_no_terminal_is_too_small(size: tuple[int, int]) -> None:
    shown(overview(), *size)


def test_what_cannot_be_looked_at_for_a_while_is_said_and_looked_at_again() -> None:
    console = terminal(100, 30)

    def looks() -> Iterator[Overview]:
        yield overview()
        raise TailraceError("log.corrupt", "what the node said cannot be read", hint="look again in a moment")

    found = looks()
    asked = 0

    def look() -> Overview:
        nonlocal asked
        asked += 1
        if asked > 2:
            raise KeyboardInterrupt
        return next(found)

    _watch(look, console, 0.0)
    assert asked == 3
    assert isinstance(console.file, io.StringIO)
    assert "it cannot be looked at: what the node said cannot be read (log.corrupt)" in console.file.getvalue()


def test_what_can_never_be_looked_at_ends_it() -> None:
    def look() -> Overview:
        raise TailraceError("input.invalid", "no node has ever run here", hint="tailrace serve NODE.yml")

    with pytest.raises(TailraceError, match="no node has ever run here"):
        _watch(look, terminal(80, 24), 0.0)
