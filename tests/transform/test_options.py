"""What all functions have in common: the short form, the namespace filter, being found by name, being refused."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from tailrace import transform
from tailrace.transform import omit, opfilter, pick, pretty, registry, remap, rename, skip, sql
from tailrace.transform.options import FunctionOptions
from tests.log.refusals import refused


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("omit", ["a", "b.c"], omit("a", "b.c")),
        ("omit", {"fields": ["a"], "namespace": "x"}, omit("a", namespace="x")),
        ("pick", ["a"], pick("a")),
        ("rename", {"a": "b"}, rename(a="b")),
        ("rename", {"x.a": "b", "y.a": "b"}, rename({"x.a": "b", "y.a": "b"})),
        ("rename", {"fields": "b"}, rename({"fields": "b"})),
        ("rename", {"fields": {"a": "b"}, "missing": "error"}, rename({"a": "b"}, missing="error")),
        ("remap", {"main.a": "public.a"}, remap({"main.a": "public.a"})),
        ("remap", {"namespaces": {"a": "b"}, "namespace": "a"}, remap({"a": "b"}, namespace="a")),
        ("skip", ["total", ">", 10], skip("total", ">", 10)),
        ("opfilter", ["insert"], opfilter("insert")),
        ("opfilter", {"blacklist": ["DELETE"]}, opfilter(blacklist=["delete"])),
        ("pretty", None, pretty()),
        ("pretty", 0, pretty(0)),
        ("sql", "SELECT * FROM messages", sql("SELECT * FROM messages")),
    ],
)
def test_short_and_long_forms(name: str, value: Any, expected: FunctionOptions) -> None:
    assert registry.find(name).model_validate(value) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("omit", []),
        ("omit", {"fields": ["a"], "feilds": 1}),
        ("omit", {"fields": ["a"], "missing": "drop"}),
        ("omit", {"fields": ["a"], "namespace": "("}),
        ("omit", {"fields": ["a"], "namespace": "x" * 300}),
        ("rename", {}),
        ("rename", {"fields": {"a": 1}}),
        ("rename", {"a": "b", "c": "b"}),
        ("rename", {"x.a": "b", "x.c": "x.b"}),
        ("remap", {"a": "../b"}),
        ("remap", {"a": ""}),
        ("opfilter", ["truncate"]),
        ("opfilter", ["command"]),
        ("opfilter", {}),
        ("opfilter", {"whitelist": ["insert"], "blacklist": ["delete"]}),
        ("pretty", -1),
        ("skip", ["a", ">"]),
    ],
)
def test_what_is_wrong_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        registry.find(name).model_validate(value)


def test_in_python_refusals_are_ours() -> None:
    with refused("config.invalid", saying="opfilter, option whitelist.0: should be 'insert'"):
        opfilter("truncate")
    with refused("config.invalid", saying="is not a regular expression"):
        omit("a", namespace="(")


@pytest.mark.parametrize(
    ("pattern", "namespace", "applies"),
    [("", "any", True), ("ord", "shop.orders", True), ("/^shop/", "shop.orders", True), ("^ord", "shop.orders", False)],
)
def test_namespace_filter(pattern: str, namespace: str, applies: bool) -> None:
    assert omit("a", namespace=pattern).applies_to(namespace) is applies


def test_every_function_is_found_and_described() -> None:
    assert registry.names() == sorted(registry.BUILT_IN)
    for name in registry.names():
        found = registry.find(name)
        assert found.kind == name
        assert "\n" not in found.summary and found.summary
        assert name in transform.__all__


def test_unknown_name() -> None:
    with refused("config.invalid", saying="no function 'rname'; did you mean rename?"):
        registry.find("rname")


def test_functions_of_other_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = tmp_path / "other-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    points = {"shout": "tests.transform.test_options:Shout", "wrong": "tests.log.refusals:refused"}
    lines = [f"{name} = {value}" for name, value in points.items()]
    (about / "entry_points.txt").write_text("\n".join(["[tailrace.functions]", *lines]))
    monkeypatch.syspath_prepend(tmp_path)
    assert {"shout", "wrong", "omit"} <= set(registry.names())
    found: Any = registry.find("shout")
    assert found.summary == "shout"
    with refused("config.invalid", saying="'wrong' of another package is not a subclass of FunctionOptions"):
        registry.find("wrong")


class Shout(FunctionOptions):
    """Somebody else's function."""

    kind: ClassVar[str] = "shout"
    summary: ClassVar[str] = "shout"


def test_functions_travel() -> None:
    for function in (omit("a"), rename(a="b"), skip("a", "in", [1, "x"]), sql("SELECT * FROM messages")):
        assert pickle.loads(pickle.dumps(function)) == function


def test_importing_is_cheap() -> None:
    program = "import sys, tailrace.transform; sys.exit(' '.join({'pyspark', 'pandas'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.stderr.strip() == ""
