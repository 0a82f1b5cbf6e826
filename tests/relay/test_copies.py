"""Copies for pipelines: their plans outlast their views."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.limits import COPIES_PER_READER_MAX
from tailrace.log.batch import decode_body
from tailrace.relay import copies as module
from tailrace.relay.copies import Copies
from tests.node.shops import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with Shop(tmp_path / "a", str(uuid.UUID(int=9)), piece_rows=10) as made:
        made.run(*(f"INSERT INTO t VALUES ({number}, 'old')" for number in range(25)))
        yield made


def rows(copies: Copies, session: str, first: int, end: int) -> int:
    frames = [frame for number in range(first, end) for group in copies.chunk(session, number) for frame in group]
    return sum(decode_body(body).num_rows for _, body in frames)


def test_a_plan_outlasts_its_process(shop: Shop, tmp_path: Path) -> None:
    directory = tmp_path / "copies"
    made = Copies(shop.store, str(directory))
    copy = made.begin("p")
    first, end = copy.tables["main.t"]
    assert rows(made, copy.session, first, end) == 25
    assert len(made.views_of("p")) == 1
    shop.run("INSERT INTO t VALUES (100, 'new')")
    (directory / "of somebody else").mkdir()
    again = Copies(shop.store, str(directory))
    assert again.views_of("p") == []
    assert rows(again, copy.session, first, end) == 26, "a row that is new has a piece"
    assert again.views_of("p") == [shop.journal.vclock]
    assert [path.name for path in directory.iterdir()] == [copy.session]


def test_so_many_at_a_time(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline's oldest makes room for its next; a peer has room for so many of its pipelines', also later."""
    monkeypatch.setattr(module, "COPIES_PER_TOKEN_MAX", 5)
    directory = tmp_path / "copies"
    made = Copies(shop.store, str(directory))
    first, *others = [made.begin("p", "paris").session for _ in range(COPIES_PER_READER_MAX + 1)]
    assert not made.has(first)
    assert all(map(made.has, others))
    made.begin("q", "paris")
    for each in (made, Copies(shop.store, str(directory))):
        with pytest.raises(TailraceError) as caught:
            each.begin("r", "paris")
        assert caught.value.code == "relay.busy"
        assert len(list(directory.iterdir())) == 5, "nothing is left of what was refused"
    made.begin("r", "berlin")
    made.end("p")
    made.begin("s", "paris")


def test_what_nobody_asks_for_goes(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First the view, then the plan."""
    directory = tmp_path / "copies"
    made = Copies(shop.store, str(directory))
    copy = made.begin("p")
    made.forget_old({"p"})
    assert len(made.views_of("p")) == 1
    monkeypatch.setattr(module, "KEEP_S", -1.0)
    made.forget_old({"p"})
    assert made.views_of("p") == []
    assert rows(made, copy.session, *copy.tables["main.t"]) == 25
    made.forget_old({"another"})
    assert list(directory.iterdir()) == []
    with pytest.raises(TailraceError) as caught:
        rows(made, copy.session, 0, 1)
    assert caught.value.code == "relay.join_lost"


def test_a_chunk_that_there_is_not(shop: Shop, tmp_path: Path) -> None:
    made = Copies(shop.store, str(tmp_path / "copies"))
    copy = made.begin("p")
    with pytest.raises(TailraceError) as caught:
        rows(made, copy.session, 99, 100)
    assert caught.value.code == "relay.malformed"
