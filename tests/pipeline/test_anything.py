"""Whatever a file says, the answer is a pipeline or a list of problems, never a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.pipeline.assemble import assemble
from tailrace.pipeline.load import examine

GOOD = r"""pipeline: shop
log: logs/${DIR:-shop}
read:
  shelf: {path: in.json, poll: 50ms, fields: [a, b]}
  namespace: main\..*
write:
  - sink: &end {path: "-"}
    through:
      - omit: [email]
      - skip: {field: a.b, operator: ">", match: 10}
      - pretty
    hold: {cap_bytes: 10GB}
  - sink: *end
settings: {spark: {spark.ui.enabled: false}}
"""

WORDS = [
    "pipeline",
    "log",
    "read",
    "write",
    "settings",
    "shelf",
    "sink",
    "namespace",
    "path",
    "poll",
    "through",
    "omit",
]
WORDS += [
    "fields",
    "skip",
    "rename",
    "remap",
    "sql",
    "hold",
    "cap_bytes",
    "policy",
    "name",
    "spark",
    "_x",
    "",
    "main.a",
]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=20,
)
ENDS = st.fixed_dictionaries({"shelf": VALUES}, optional={"namespace": VALUES, "through": VALUES, "hold": VALUES})
PIPELINES = st.fixed_dictionaries(
    {"pipeline": SCALARS, "read": ENDS | VALUES, "write": ENDS | st.lists(ENDS, max_size=2) | VALUES},
    optional={"log": SCALARS, "settings": VALUES},
)


@given(said=PIPELINES | VALUES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_values(said: Any) -> None:
    spec, problems = assemble(said, "/base")
    assert (spec is None) == bool(problems)


@given(
    at=st.integers(0, len(GOOD)),
    cut=st.integers(0, 6),
    put=st.text(max_size=4) | st.sampled_from(["${", "&a ", "*a", "- "]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_damage_to_a_good_file(at: int, cut: int, put: str) -> None:
    damaged = GOOD[:at] + put + GOOD[at + cut :]
    Path("shop.yml").write_bytes(damaged.encode("utf-8", "surrogatepass"))
    examined = examine("shop.yml", {})
    assert (examined.spec is None) == bool(examined.problems)
    lines = damaged.count("\n") + 2
    assert all(1 <= problem.line <= lines and problem.column >= 1 for problem in examined.problems)


def test_the_good_file_is_good() -> None:
    Path("shop.yml").write_text(GOOD)
    assert examine("shop.yml", {}).problems == ()
