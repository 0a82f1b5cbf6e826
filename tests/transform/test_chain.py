"""Chain: functions one after the other, each on the namespaces it is for."""

from __future__ import annotations

import pickle
from typing import ClassVar

import pytest

from tailrace.deliver.messages import Messages
from tailrace.transform import omit, opfilter, python, remap, rename, skip, sql
from tailrace.transform.chain import Chain
from tailrace.transform.options import FunctionOptions
from tests.log.refusals import refused
from tests.transform.material import DELETE, INSERT, data_of, messages_of, offsets_of

SQL = sql("SELECT * FROM messages")


def test_in_order() -> None:
    chain = Chain((rename(a="b"), omit("a"), skip("b", ">", 1), opfilter("insert")))
    after = chain.apply(messages_of([{"a": 1}, {"a": 2}, {"a": 3}], ops=[INSERT, INSERT, DELETE]))
    assert data_of(after) == [{"b": 2}]
    assert offsets_of(after) == [101]


def test_nothing_to_do() -> None:
    given = messages_of([{"a": 1}])
    assert Chain().apply(given) is given


def test_namespaces_that_do_not_match_pass_unchanged() -> None:
    given = messages_of([{"a": 1, "b": 2}], namespace="shop.orders")
    assert data_of(Chain((omit("a", namespace="customers"),)).apply(given)) == [{"a": 1, "b": 2}]
    assert data_of(Chain((omit("a", namespace="/orders/"),)).apply(given)) == [{"b": 2}]


def test_the_namespace_of_the_moment_counts() -> None:
    chain = Chain((remap({"shop.orders": "lake.orders"}), omit("a", namespace="^shop"), omit("b", namespace="^lake")))
    after = chain.apply(messages_of([{"a": 1, "b": 2}]))
    assert after.namespace == "lake.orders"
    assert data_of(after) == [{"a": 1}]
    assert chain.apply(messages_of([{"a": 1}], namespace="other")).namespace == "other"


class Broken(FunctionOptions):
    """Fails in a way of its own."""

    kind: ClassVar[str] = "broken"
    summary: ClassVar[str] = "fail"

    def apply(self, messages: Messages) -> Messages:
        raise KeyError("x")


def test_foreign_errors_name_the_function() -> None:
    with refused("function.failed", saying="broken failed on 'shop.orders': KeyError: 'x'") as refusal:
        Chain((Broken(),)).apply(messages_of([{"a": 1}]))
    assert refusal.value.hint == "tailrace log show 100"
    with refused("function.failed"):
        Chain((Broken(),)).apply(messages_of([{"a": 1}]).slice(0, 0))


@pytest.mark.parametrize(
    ("functions", "leading"),
    [
        ((), 0),
        ((omit("a"), omit("b")), 2),
        ((omit("a"), SQL, omit("b")), 1),
        ((SQL,), 0),
        ((python(len), python(len, frame=True), SQL), 1),
    ],
)
def test_split(functions: tuple[FunctionOptions, ...], leading: int) -> None:
    chain = Chain(functions)
    first, rest = chain.split()
    assert (first.functions, rest) == (functions[:leading], functions[leading:])
    assert chain.needs_frames is bool(rest)
    assert first.needs_frames is False


def test_chains_travel() -> None:
    chain = Chain((omit("a"), SQL))
    assert pickle.loads(pickle.dumps(chain)) == chain
