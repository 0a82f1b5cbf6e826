"""Queries are looked over before anything runs."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tailrace.transform.select import NotPerMessage, read_select
from tailrace.transform.sql import Sql


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT a FROM messages", "SELECT `m`,  a FROM messages"),
        ("  select all a from MESSAGES ; ", "select all `m`,  a from MESSAGES"),
        ("SELECT/* why */a FROM messages", "SELECT `m`, /* why */a FROM messages"),
        ("-- why\nSELECT a FROM messages", "-- why\nSELECT `m`,  a FROM messages"),
        ("SELECT /*+ BROADCAST(x) */ a FROM messages", "SELECT /*+ BROADCAST(x) */ `m`,  a FROM messages"),
    ],
)
def test_one_more_column(query: str, expected: str) -> None:
    assert read_select(query).with_column("m") == expected


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a FROM `messages` WHERE b > 3",
        "SELECT 'GROUP BY; (' AS a, \"it''s\" AS b, `LIMIT` FROM messages",
        "SELECT m.limit, m.max FROM messages m",
        "SELECT a -- UNION\n FROM messages /* ORDER BY */",
        "SELECT order, group, first FROM messages",
        "SELECT * EXCEPT (a) FROM messages",
        "SELECT a FROM messages WHERE a IN (SELECT max(b) FROM other GROUP BY c)",
        "SELECT greatest(a, b), array_max(c) FROM messages",
        "SELECT CASE WHEN a > 0 THEN 1 ELSE 2 END AS b FROM messages",
        "SELECT a IS DISTINCT FROM b AS differs FROM messages",
    ],
)
def test_what_sees_one_message_is_fine(query: str) -> None:
    read_select(query)
    assert Sql.model_validate(query).query == query


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("", "begin with SELECT"),
        ("DROP TABLE messages", "begin with SELECT"),
        ("WITH x AS (SELECT 1) SELECT * FROM messages", "begin with SELECT"),
        ("(SELECT a FROM messages)", "begin with SELECT"),
        ("SELECT 1", "FROM messages"),
        ("SELECT a FROM orders", "FROM messages"),
        ("SELECT FROM messages", "no column"),
        ("SELECT DISTINCT a FROM messages", "DISTINCT"),
        ("SELECT a FROM messages GROUP BY a", "GROUP BY"),
        ("SELECT a FROM messages HAVING a > 1", "HAVING"),
        ("SELECT a FROM messages UNION ALL SELECT b FROM messages", "UNION"),
        ("SELECT a FROM messages EXCEPT SELECT b FROM messages", "EXCEPT"),
        ("SELECT a FROM messages ORDER BY a", "ORDER BY"),
        ("SELECT a FROM messages LIMIT 5", "LIMIT"),
        ("SELECT count(*) FROM messages", "aggregate count"),
        ("SELECT 1 + Sum (a) FROM messages", "aggregate Sum"),
        ("SELECT row_number() OVER (ORDER BY a) FROM messages", "OVER"),
        ("SELECT a FROM messages; DROP TABLE x", "one statement"),
        ("SELECT 'a FROM messages", "quote ' is not closed"),
        ("SELECT (a FROM messages", "not closed"),
        ("SELECT a) FROM messages", "not opened"),
    ],
)
def test_what_sees_more_is_refused(query: str, why: str) -> None:
    with pytest.raises(NotPerMessage, match=why.replace("(", r"\(")):
        read_select(query)
    with pytest.raises(ValidationError):
        Sql.model_validate(query)


@pytest.mark.parametrize(
    ("columns", "has_star"),
    [
        ("*", True),
        ("a, *", True),
        ("messages.*, a", True),
        ("a * b", False),
        ("2 * (a), count_of", False),
        ("'*'", False),
    ],
)
def test_star(columns: str, has_star: bool) -> None:
    assert read_select(f"SELECT {columns} FROM messages").has_star is has_star
