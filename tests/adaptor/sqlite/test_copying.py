"""How a table is divided into pieces."""

from pathlib import Path

import pytest

from tailrace.adaptor.sqlite.options import SqliteReaderOptions
from tailrace.errors import TailraceError
from tailrace.source.contract import Piece
from tests.adaptor.contract import messages, plain
from tests.adaptor.sqlite.databases import connected, run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


def plan(path: Path, piece_rows: int) -> list[Piece]:
    reader = SqliteReaderOptions(path=str(path), piece_rows=piece_rows).open()
    (table,) = reader.tables()
    return [plain(piece) for piece in reader.plan_copy(table)]


def sizes(path: Path, pieces: list[Piece]) -> list[int]:
    reader = SqliteReaderOptions(path=str(path)).open()
    return [sum(len(batch) for batch in reader.read_copy("main.t", piece)) for piece in pieces]


def fill(path: Path, ids: list[int]) -> None:
    run(path, "CREATE TABLE t(id INTEGER PRIMARY KEY)")
    with connected(path) as connection:
        connection.executemany("INSERT INTO t VALUES (?)", [(number,) for number in ids])


@pytest.mark.parametrize(
    "ids",
    [
        list(range(1000)),
        list(range(-(2**63), -(2**63) + 1000)),
        list(range(0, 1_000_000, 1000)),
        [*range(500), *range(2**62, 2**62 + 500)],
        [2**63 - 1 - number**6 for number in range(1000)],
        [0, 2**63 - 1, *range(10**6, 10**6 + 998)],
    ],
    ids=["dense", "lowest", "sparse", "two heaps", "thinning", "far ends"],
)
def test_pieces_are_about_even(path: Path, ids: list[int]) -> None:
    fill(path, ids)
    found = sizes(path, plan(path, 100))
    assert sum(found) == 1000
    assert 10 <= len(found) <= 21
    assert max(found) <= 200


def test_few_rows_far_apart(path: Path) -> None:
    """An even split of the numbers would make pieces without end."""
    fill(path, [-(2**63), 0, 2**63 - 1])
    assert sum(sizes(path, plan(path, 1))) == 3
    assert len(plan(path, 1000)) == 1


def test_rows_that_only_seem_dense(path: Path) -> None:
    """Wherever somebody looks there are rows, and nothing between."""
    fill(path, [number * 2**50 // 8 + row for number in range(9) for row in range(1000)])
    found = sizes(path, plan(path, 100))
    assert sum(found) == 9000
    assert max(found) == 100


def test_rows_are_estimated_without_counting(path: Path) -> None:
    fill(path, list(range(0, 20_000, 2)))
    (table,) = SqliteReaderOptions(path=str(path)).open().tables()
    assert table.rows is not None
    assert 8_000 <= table.rows <= 12_000


@pytest.mark.parametrize("columns", ["a TEXT, b REAL", "a BLOB, b", "a, b TEXT COLLATE NOCASE"])
def test_keys_of_any_class(path: Path, columns: str) -> None:
    """Borders that JSON has no word for: blobs, infinity, text that is not UTF-8."""
    run(
        path,
        f"CREATE TABLE t({columns}, PRIMARY KEY(a, b)) WITHOUT ROWID",
        "INSERT INTO t VALUES (x'00ff', 9e999), (x'ff', -9e999), (CAST(x'fe' AS TEXT), 1), ('a', 2), ('B', 'b')",
        "INSERT INTO t VALUES (CAST(x'ff' AS TEXT), CAST(x'ff' AS TEXT)), ('', ''), (1, 2), (1, 3), (7, 8.5)",
    )
    assert sizes(path, plan(path, 1)) == [1] * 10 + [0]
    assert sizes(path, plan(path, 3)) == [3, 3, 3, 1]


def test_a_key_that_only_its_program_can_sort(path: Path) -> None:
    with connected(path) as connection:
        connection.create_collation("own", lambda a, b: (a > b) - (a < b))
        connection.execute("CREATE TABLE t(id TEXT COLLATE own PRIMARY KEY) WITHOUT ROWID")
        connection.executemany("INSERT INTO t VALUES (?)", [("a",), ("b",)])
    with pytest.raises(TailraceError) as caught:
        plan(path, 1)
    assert caught.value.code == "source.unsupported"


def test_a_column_that_only_its_program_can_sort(path: Path) -> None:
    with connected(path) as connection:
        connection.create_collation("own", lambda a, b: (a > b) - (a < b))
        connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT COLLATE own UNIQUE)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(1, "a"), (2, "b")])
    assert sizes(path, plan(path, 1)) == [1, 1]


def test_columns_that_changed_after_planning(path: Path) -> None:
    run(path, "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b TEXT)", "INSERT INTO t VALUES (1, 'a', 'b')")
    pieces = plan(path, 100)
    run(path, "ALTER TABLE t DROP COLUMN a", "ALTER TABLE t ADD COLUMN c INT DEFAULT 5")
    reader = SqliteReaderOptions(path=str(path)).open()
    (message,) = messages(batch for piece in pieces for batch in reader.read_copy("main.t", piece))
    assert message.data == {"id": 1, "b": "b", "c": 5}


def test_a_table_that_is_gone(path: Path) -> None:
    fill(path, [1, 2])
    pieces = plan(path, 1)
    run(path, "DROP TABLE t")
    assert sizes(path, pieces) == [0] * len(pieces)
