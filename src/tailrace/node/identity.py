"""Who a node is: a number of 64 bits, made once and kept, and the cluster that it belongs to."""

from __future__ import annotations

import json
import os
import secrets
import uuid
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from tailrace.errors import Place, TailraceError
from tailrace.limits import U64_MAX
from tailrace.log.disk import Disk, disk_errors
from tailrace.message import NodeId

NAME: Final = "node.json"


@dataclass(frozen=True, slots=True)
class Identity:
    """A node's number, and its cluster: none until it has founded or joined one."""

    node: NodeId
    cluster: str | None = None
    is_anonymous: bool = False
    """Whether it only reads: it is in no list of its cluster's nodes. A node that is registered stays so."""


def identity_of(directory: str) -> Identity:
    """The identity of the node that keeps its data in a directory; made at random the first time."""
    path = os.path.join(directory, NAME)
    with disk_errors("reading a node's identity", path):
        try:
            with open(path, "rb") as stream:
                return _decode(stream.read(4096), path)
        except FileNotFoundError:
            made = Identity(NodeId(secrets.randbelow(U64_MAX) + 1))
            _keep(path, made)
            return made


def enter(directory: str, cluster: str | None = None, *, is_anonymous: bool = False) -> Identity:
    """The node belongs to a cluster from now on, to a new one when none is named. It never changes it."""
    known = identity_of(directory)
    if known.cluster is not None:
        if cluster not in (None, known.cluster):
            what = f"this node belongs to cluster {known.cluster}, not to {cluster}"
            raise TailraceError("relay.wrong_cluster", what, hint="join with a new node, or name another source")
        return known
    entered = replace(known, cluster=cluster or str(uuid.uuid4()), is_anonymous=is_anonymous)
    path = os.path.join(directory, NAME)
    with disk_errors("keeping a node's identity", path):
        _keep(path, entered)
    return entered


def become_registered(directory: str) -> Identity:
    """A node that only read is one of the cluster's nodes from now on."""
    registered = replace(identity_of(directory), is_anonymous=False)
    path = os.path.join(directory, NAME)
    with disk_errors("keeping a node's identity", path):
        _keep(path, registered)
    return registered


def _keep(path: str, identity: Identity) -> None:
    Disk().replace_file(path, json.dumps(asdict(identity)).encode())


def _decode(raw: bytes, path: str) -> Identity:
    try:
        told: dict[str, Any] = json.loads(raw)
        node, cluster, is_anonymous = told["node"], told["cluster"], told.get("is_anonymous", False)
        if not isinstance(node, int) or not 0 < node <= U64_MAX:
            raise ValueError("the node's number is none")
        if not isinstance(is_anonymous, bool):
            raise TypeError("whether it is anonymous is not said")
        return Identity(NodeId(node), None if cluster is None else str(uuid.UUID(cluster)), is_anonymous)
    except (ValueError, KeyError, TypeError) as error:
        what = f"a node's identity cannot be read: {error}"
        raise TailraceError("log.corrupt", what, place=Place(path), hint="mend the file") from error
