"""A new snapshot for a node whose store is in PostgreSQL."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tailrace.relay.applier import State
from tests.node.pgshops import PgShop
from tests.node.shops import Shop, settle
from tests.node.test_gaps import CLUSTER, follow, let_go, said
from tests.node.test_postgres_store import NewDatabase, new_database, postgres, stack
from tests.relay.nodes import wait_until

__all__ = ["new_database", "postgres", "stack"]  # fixtures


def test_a_new_snapshot(new_database: NewDatabase, stack: ExitStack, tmp_path: Path) -> None:
    """Not before the source has what was written here; then all rows are replaced, and both follow each other."""
    a = stack.enter_context(Shop(tmp_path / "a", CLUSTER))
    b = stack.enter_context(PgShop(tmp_path / "b", None, new_database()))
    first = b.join(a)
    wait_until(first, State.FOLLOW)
    a.run("INSERT INTO t VALUES (1, 'first')", "INSERT INTO t VALUES (2, 'second')")
    settle([a, b])
    first.stop()
    b.appliers.remove(first)
    a.run("DELETE FROM t WHERE id = 1")
    let_go(a, b)
    b.run("INSERT INTO t VALUES (7, 'of b')")

    applier = follow(stack, b, {"a": a}, resnapshot=True)["a"]
    assert "relay.unsent" in said(applier)
    assert (7, "of b") in b.rows()
    a.follow(b)
    wait_until(applier, State.FOLLOW)
    settle([a, b])
    assert b.rows() == a.rows()
    assert {(2, "second"), (7, "of b")} <= set(b.rows())
    assert (1, "first") not in b.rows()
    b.run("UPDATE t SET word = 'changed at b' WHERE id = 2")
    a.run("DELETE FROM t WHERE id = 7")
    settle([a, b])
    assert b.rows() == a.rows()
    assert (2, "changed at b") in a.rows()
