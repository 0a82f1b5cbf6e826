"""Progress on a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from tailrace.cli.bars import NAMESPACES_MAX, picture
from tailrace.cli.sight import NamespaceSight, Sight, WriterSight
from tailrace.source.phase import Phase


def drawn(sight: Sight) -> str:
    stream = io.StringIO()
    Console(file=stream, width=120, force_terminal=True, color_system=None).print(picture(sight))
    return stream.getvalue()


def test_a_copy_and_its_writer() -> None:
    orders = NamespaceSight("main.orders", Phase.COPY, 1_000, 4_000, 1_000, 500.0)
    lake = WriterSight("lake", "running", 1_200, 3, 300.0, 42, 1.5)
    text = drawn(Sight((orders,), (lake,), is_waiting=False))
    row = next(line for line in text.splitlines() if "main.orders" in line)
    assert "1,000 of about 4,000 rows, 25%" in row
    assert "━━━━━" in row
    assert "500/s" in row
    assert row.rstrip().endswith("6.0 s")
    row = next(line for line in text.splitlines() if "lake" in line)
    assert "1,200 messages, 3 put aside" in row
    assert "42 messages, 1.5 s" in row
    assert "waiting" not in text


def test_waiting() -> None:
    copy = WriterSight("copy", "waiting for messages", 10, 0, 0.0, 0, 0.0)
    text = drawn(Sight((NamespaceSight("main.items", Phase.SYNC, 9, 9, 10, 0.0),), (copy,), is_waiting=True))
    assert "waiting for changes" in text
    assert "nothing" in text


def test_what_is_copied_is_shown_first_and_the_rest_is_counted() -> None:
    quiet = [NamespaceSight(f"a.{number}", Phase.SYNC, 0, 0, 0, 0.0) for number in range(NAMESPACES_MAX)]
    copied = NamespaceSight("z.last", Phase.COPY, 1, None, 1, 1.0)
    text = drawn(Sight((*quiet, copied), (), is_waiting=False))
    assert text.splitlines()[1].startswith("z.last")
    assert "and 1 more" in text


def test_names_are_no_markup_and_nothing_a_terminal_obeys() -> None:
    text = drawn(Sight((NamespaceSight("[red]a\x1b[2J", Phase.SYNC, 0, 0, 0, 0.0),), (), is_waiting=False))
    assert "[red]a\\x1b[2J" in text
