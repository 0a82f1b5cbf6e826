"""Namespaces of the relay's own that travel between nodes. All others that are reserved stay where they are."""

from __future__ import annotations

from typing import Final

from tailrace.namespace import RESERVED

NOOPS: Final = f"{RESERVED}noop"
"""What stands for messages that a peer does not want."""
CLUSTER: Final = f"{RESERVED}cluster"
"""The nodes that belong to the cluster: one message each."""
VERSIONS: Final = f"{RESERVED}versions"
"""Which message wrote each row last: part of what a newcomer gets."""
SYNCHRO: Final = f"{RESERVED}synchro"
"""What leaders say about synchronous transactions."""
TRAVELLING: Final = (NOOPS, CLUSTER, VERSIONS, SYNCHRO)
OPERATOR: Final = "operator"
"""What whoever says the operator's token is called; no peer can have this name."""
