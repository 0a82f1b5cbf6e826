"""Nobody speaks for another node."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.relay.acquaintances import NAME, Acquaintances


def test_the_first_name_is_the_name(tmp_path: Path) -> None:
    known = Acquaintances(str(tmp_path))
    known.check(1, "paris")
    known.check(2, "paris")
    known.check(1, "paris")
    for again in (known, Acquaintances(str(tmp_path))):
        with pytest.raises(TailraceError) as caught:
            again.check(1, "berlin")
        assert caught.value.code == "relay.no_rights"


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("[1]")
    with pytest.raises(TailraceError) as caught:
        Acquaintances(str(tmp_path))
    assert caught.value.code == "log.corrupt"
