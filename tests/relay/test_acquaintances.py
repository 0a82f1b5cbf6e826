"""Nobody speaks for another node."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.relay.acquaintances import NAME, READERS, Acquaintances


def test_the_first_name_is_the_name(tmp_path: Path) -> None:
    known = Acquaintances(str(tmp_path))
    known.check(1, "paris")
    known.check(2, "paris")
    known.check(1, "paris")
    for again in (known, Acquaintances(str(tmp_path))):
        with pytest.raises(TailraceError) as caught:
            again.check(1, "berlin")
        assert caught.value.code == "relay.no_rights"


def test_one_name_for_so_many(tmp_path: Path) -> None:
    """Those for whom nothing is kept any more make room."""
    held = {"1", "2"}
    known = Acquaintances(str(tmp_path), each_max=3, is_held=lambda who: who in held)
    for node in range(1, 9):
        known.check(node, "paris")
    held |= {"8"}
    with pytest.raises(TailraceError) as caught:
        known.check(9, "paris")
    assert caught.value.code == "relay.busy"
    known.check(9, "berlin")


def test_who_is_forgotten_may_come_under_another_name(tmp_path: Path) -> None:
    known = Acquaintances(str(tmp_path), READERS)
    for reader in ("reports", "lake"):
        known.check(reader, "paris")
    known.forget("reports")
    known.check("reports", "berlin")
    known.forget_all_but({"reports"})
    Acquaintances(str(tmp_path), READERS).check("lake", "berlin")


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("[1]")
    with pytest.raises(TailraceError) as caught:
        Acquaintances(str(tmp_path))
    assert caught.value.code == "log.corrupt"
