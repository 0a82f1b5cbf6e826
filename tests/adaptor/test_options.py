"""Options that are nobody's to give."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.pipeline.assemble import assemble
from tailrace.pipeline.catalog import Use, describe_adaptor
from tailrace.pipeline.schema import pipeline_schema


@pytest.mark.parametrize(
    ("adaptor", "end", "option"),
    [
        ("sqlite", "write", "consumer"),
        ("lake", "write", "consumer"),
        ("postgres", "write", "consumer"),
        ("postgres", "read", "pipeline"),
    ],
)
def test_what_the_pipeline_fills_in_is_nobody_elses(adaptor: str, end: Use, option: str) -> None:
    given = {"url": "postgresql:///x"} if adaptor == "postgres" else {"path": "x"}
    ends = {"read": {"sqlite": {"path": "source"}}, "write": {"sqlite": {"path": "destination"}}}
    said: dict[str, Any] = {"pipeline": "test", **ends, end: {adaptor: {**given, option: "mine"}}}
    assert option not in [each.name for each in describe_adaptor(adaptor).options[end]]
    assert option not in pipeline_schema()["$defs"][f"{end}.{adaptor}"]["properties"]
    spec, problems = assemble(said, "")
    assert spec is None
    assert [problem.text.partition(" in ")[0] for problem in problems] == [f"unknown key {option!r}"]
