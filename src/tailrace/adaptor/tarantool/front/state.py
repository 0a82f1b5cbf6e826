"""What a front must remember: the numbers by which Tarantools know nodes and tables. Kept in the node's directory.

Changes of the catalog are no messages of any node. They have an origin of their own, with numbers of its own.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tailrace.adaptor.tarantool.catalog import INDEXES, SPACES
from tailrace.errors import TailraceError
from tailrace.log.disk import Disk, disk_errors
from tailrace.message import Lsn, NodeId
from tailrace.relay.vclock import Vclock

NAME: Final = "iproto.json"
CATALOG: Final = 31
"""The number of the origin of changes of the catalog, the last that there is."""
MASTER: Final = 1
_FIRST_SPACE: Final = 512
_OWNER: Final = 1


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows of a namespace are laid out as tuples."""

    space: int
    namespace: str
    fields: tuple[str, ...]
    key: tuple[str, ...]

    def space_row(self) -> list[Any]:
        """Its row in `_space`. A store's columns have values of any type."""
        described = [
            {"name": name, "type": "scalar" if name in self.key else "any", "is_nullable": name not in self.key}
            for name in self.fields
        ]
        return [self.space, _OWNER, self.namespace, "memtx", 0, {}, described]

    def index_row(self) -> list[Any]:
        """Its row in `_index`."""
        parts = [[self.fields.index(name), "scalar"] for name in self.key]
        return [self.space, 0, "primary", "tree", {"unique": True}, parts]


@dataclass(frozen=True, slots=True)
class CatalogRow:
    """One change of the catalog."""

    lsn: int
    space: int
    row: list[Any]


@dataclass(slots=True)
class FrontState:
    """Everything that is remembered. Safe to use from several threads."""

    path: str
    node: NodeId
    instance: str = ""
    """The uuid as which the node presents itself."""
    ids: dict[int, int] = field(default_factory=dict)
    """By node: the number that its messages have."""
    replicas: dict[int, str] = field(default_factory=dict)
    """By node: the uuid of a Tarantool that has joined."""
    layouts: dict[str, Layout] = field(default_factory=dict)
    catalog: list[CatalogRow] = field(default_factory=list)
    catalog_lsn: int = 0
    """The last number that the origin of changes of the catalog has given."""
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def layout(self, namespace: str, fields: Sequence[str], key: Sequence[str]) -> Layout:
        """The layout of a namespace, made or widened if need be."""
        with self._lock:
            known = self.layouts.get(namespace)
            if known is None:
                made = Layout(_FIRST_SPACE + len(self.layouts), namespace, tuple(fields), tuple(key))
                self._note(made, is_new=True)
            elif new := [name for name in fields if name not in known.fields]:
                self._note(replace(known, fields=(*known.fields, *new)), is_new=False)
            return self.layouts[namespace]

    def id_of(self, node: NodeId) -> int:
        """The number of a node, given to it when it is first asked for."""
        with self._lock:
            if node == self.node:
                return MASTER
            if node not in self.ids:
                free = next((id_ for id_ in range(2, CATALOG) if id_ not in self.ids.values()), None)
                if free is None:
                    what = f"Tarantool knows {CATALOG - 1} nodes at most, and there are more"
                    raise TailraceError("relay.no_rights", what, hint="remove replicas that are gone from iproto.json")
                self.ids[node] = free
                self._keep()
            return self.ids[node]

    def enter(self, replica: str) -> NodeId:
        """The node that a Tarantool is here."""
        node = NodeId(uuid.UUID(replica).int >> 64 or 1)
        with self._lock:
            self.id_of(node)
            if self.replicas.get(node) != replica:
                self.replicas[node] = replica
                self._keep()
        return node

    def numbered(self, vclock: Vclock) -> dict[int, int]:
        """A clock as Tarantools know it."""
        with self._lock:
            found = {self.id_of(node): int(lsn) for node, lsn in vclock.items()}
            return {**found, CATALOG: self.catalog_lsn} if self.catalog_lsn else found

    def next_lsn(self) -> int:
        """A number for a row that no message stands for."""
        with self._lock:
            self.catalog_lsn += 1
            self._keep()
            return self.catalog_lsn

    def clock(self, numbered: Mapping[int, int], replica: NodeId) -> Vclock:
        """The inverse of `numbered`, without what the replica itself wrote."""
        nodes = {id_: NodeId(node) for node, id_ in self.ids.items()} | {MASTER: self.node}
        return Vclock({nodes[id_]: Lsn(lsn) for id_, lsn in numbered.items() if nodes.get(id_, replica) != replica})

    def _note(self, layout: Layout, *, is_new: bool) -> None:
        self.layouts[layout.namespace] = layout
        rows = [(SPACES, layout.space_row())] + ([(INDEXES, layout.index_row())] if is_new else [])
        for space, row in rows:
            self.catalog_lsn += 1
            self.catalog.append(CatalogRow(self.catalog_lsn, space, row))
        self._keep()

    def _keep(self) -> None:
        told = {
            "instance": self.instance,
            "ids": {str(node): id_ for node, id_ in self.ids.items()},
            "replicas": {str(node): replica for node, replica in self.replicas.items()},
            "layouts": [[each.space, each.namespace, each.fields, each.key] for each in self.layouts.values()],
            "catalog_lsn": self.catalog_lsn,
            "catalog": [[each.lsn, each.space, each.row] for each in self.catalog],
        }
        with disk_errors("keeping what Tarantools know", self.path):
            Disk().replace_file(self.path, json.dumps(told).encode())


def load_state(directory: str, node: NodeId) -> FrontState:
    """What the front of a node remembers; made when it is the first time."""
    path = os.path.join(directory, NAME)
    state = FrontState(path, node)
    with disk_errors("reading what Tarantools know", path):
        try:
            with open(path, "rb") as stream:
                told = json.load(stream)
        except FileNotFoundError:
            state.instance = str(uuid.uuid4())
            state._keep()
            return state
    state.instance = told["instance"]
    state.ids = {int(node): id_ for node, id_ in told["ids"].items()}
    state.replicas = {int(node): replica for node, replica in told["replicas"].items()}
    made = [Layout(space, name, tuple(fields), tuple(key)) for space, name, fields, key in told["layouts"]]
    state.layouts = {each.namespace: each for each in made}
    state.catalog = [CatalogRow(*each) for each in told["catalog"]]
    state.catalog_lsn = told["catalog_lsn"]
    return state
