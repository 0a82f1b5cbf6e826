"""The nodes that a database knows: what each must prove, and which keys are its own."""
# ruff: noqa: S608  names cannot be bound; all of them are sync's own

from __future__ import annotations

import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from tailrace.errors import TailraceError
from tailrace.sync.database import Link
from tailrace.sync.install import KEY_NODE_MAX
from tailrace.sync.names import Dialect, mark

WE_CALL: Final = 1
CALLS_US: Final = 2
"""How a node is known: bits of `rel`."""
_RESERVING: Final = 0x6B65794E
_TRIES: Final = 1000


@dataclass(frozen=True, slots=True)
class Node:
    """Another node."""

    auth: str | None
    """What it must prove to know, as it is stored; None when it was never told."""
    rel: int
    key_node: int | None
    called_as: str | None = None
    """What it is called where it is called."""


def find(link: Link, dialect: Dialect, node: int) -> Node | None:
    query = f"SELECT auth, rel, keyNode, calledAs FROM DoorNode WHERE nodeId = {mark(dialect, 1)}"
    found = link.rows(query, (node,))
    return Node(*found[0]) if found else None


def find_called(link: Link, dialect: Dialect, name: str) -> int | None:
    """The node that is called so."""
    found = link.value(f"SELECT nodeId FROM DoorNode WHERE calledAs = {mark(dialect, 1)}", (name,))
    return None if found is None else int(found)


def set_called(link: Link, dialect: Dialect, node: int, name: str) -> None:
    """What a node is called from now on."""
    link.run(f"UPDATE DoorNode SET calledAs = {mark(dialect, 2)} WHERE nodeId = {mark(dialect, 1)}", (node, name))


def count(link: Link) -> int:
    return int(link.value("SELECT count(*) FROM DoorNode"))


def add(link: Link, dialect: Dialect, node: int, rel: int, auth: str | None) -> bool:
    """Know a node, and in one more way if it is known already; whether it was not. What it must prove is told once."""
    one, two, three = (mark(dialect, number) for number in range(1, 4))
    into = f"INSERT INTO DoorNode(nodeId, rel, auth) VALUES ({one}, {two}, {three}) ON CONFLICT (nodeId) DO NOTHING"
    if link.run(into, (node, rel, auth)) == 1:
        return True
    known = find(link, dialect, node)
    if known is not None and known.rel | rel != known.rel:
        link.run(f"UPDATE DoorNode SET rel = rel | {rel:d} WHERE nodeId = {one}", (node,))
    if known is not None and auth is not None and known.auth is None:
        link.run(f"UPDATE DoorNode SET auth = {two} WHERE nodeId = {one} AND auth IS NULL", (node, auth))
    return False


def set_auth(link: Link, dialect: Dialect, node: int, auth: str) -> None:
    """What a node must prove from now on."""
    link.run(f"UPDATE DoorNode SET auth = {mark(dialect, 2)} WHERE nodeId = {mark(dialect, 1)}", (node, auth))


def remove(link: Link, dialect: Dialect, node: int) -> bool:
    return link.run(f"DELETE FROM DoorNode WHERE nodeId = {mark(dialect, 1)}", (node,)) == 1


def reserve_key_node(link: Link, dialect: Dialect, node: int) -> int:
    """The number that a node makes keys with, which no other one gets."""
    if dialect is Dialect.POSTGRES:
        link.run("SELECT pg_advisory_xact_lock($1)", (_RESERVING,))
    known = find(link, dialect, node)
    if known is None:
        raise TailraceError("sync.bad_node", f"node {node} is unknown", hint="tailrace sync node add")
    if known.key_node is not None:
        return known.key_node
    one, two = mark(dialect, 1), mark(dialect, 2)
    is_taken = f"SELECT 1 FROM DoorNode WHERE keyNode = {one} UNION ALL SELECT 1 FROM DoorSelf WHERE keyNode = {one}"
    for _ in range(_TRIES):
        number = secrets.randbelow(KEY_NODE_MAX) + 1
        if not link.rows(is_taken, (number,)):
            link.run(f"UPDATE DoorNode SET keyNode = {one} WHERE nodeId = {two}", (number, node))
            return number
    what = f"nearly all of the {KEY_NODE_MAX} numbers that nodes make keys with are given away"
    raise TailraceError("sync.busy", what, hint="remove nodes that are gone from DoorNode")


def saw(link: Link, dialect: Dialect, nodes: Collection[int]) -> None:
    """Nodes were heard of just now."""
    now = int(time.time() * 1000)
    link.run_many(f"UPDATE DoorNode SET lastSeen = {now:d} WHERE nodeId = {mark(dialect, 1)}", [(n,) for n in nodes])
