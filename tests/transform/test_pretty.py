"""pretty: every message is logged and passes."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tailrace.transform import pretty
from tests.transform.material import DELETE, INSERT, json_field, messages_of, messages_with


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "tailrace.pretty"]


def test_logs_and_passes_on(caplog: pytest.LogCaptureFixture) -> None:
    before: Any = pa.array([None, {"a": 0}])
    given = messages_with(pa.array([{"a": 1}, None]), before=before, ops=[INSERT, DELETE])
    with caplog.at_level(logging.INFO, "tailrace.pretty"):
        assert pretty().apply(given) is given
    first, second = logged(caplog)
    assert first.splitlines()[1] == '  "namespace": "shop.orders",'
    common = {"namespace": "shop.orders", "op": "insert", "timestamp": 0, "offset": 100}
    assert json.loads(first) == {**common, "data": {"a": 1}}
    assert json.loads(second) == {
        **common,
        "op": "delete",
        "timestamp": 1,
        "offset": 101,
        "data": None,
        "before": {"a": 0},
    }


def test_one_line(caplog: pytest.LogCaptureFixture) -> None:
    moment = datetime(2026, 1, 31, tzinfo=UTC)
    rows = [{"price": Decimal("1.50"), "at": moment, "raw": b"\xff", "name": "Zoë"}]
    with caplog.at_level(logging.INFO, "tailrace.pretty"):
        pretty(0).apply(messages_of(rows))
    (line,) = logged(caplog)
    assert "\n" not in line
    assert '"name": "Zoë"' in line
    assert json.loads(line)["data"] == {
        "price": "1.50",
        "at": "2026-01-31 00:00:00+00:00",
        "raw": "/w==",
        "name": "Zoë",
    }


def test_json_text_is_shown_as_what_it_is(caplog: pytest.LogCaptureFixture) -> None:
    data = pa.StructArray.from_arrays([pa.array(['[1, "x"]'])], fields=[json_field("list")])
    with caplog.at_level(logging.INFO, "tailrace.pretty"):
        pretty(0).apply(messages_with(data))
    assert json.loads(logged(caplog)[0])["data"] == {"list": [1, "x"]}


def test_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tailrace.pretty"):
        pretty().apply(messages_of([{"a": 1}]))
    assert logged(caplog) == []
