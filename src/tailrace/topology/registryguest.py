"""A registry as a guest of a node's server. What changes the topology for others is for operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from tailrace.errors import TailraceError
from tailrace.relay.paper import Paper
from tailrace.topology.registry import Registry
from tailrace.topology.registrycalls import (
    ROWS_MAX,
    Call,
    Database,
    Keepalive,
    Kept,
    Moved,
    Offered,
    OfLog,
    One,
    RegisterReplicant,
    ResetNodes,
    Rows,
    Rule,
    Settings,
    SetTunable,
    Some,
    Updated,
    UpdateRegistry,
    Waits,
)

_OPERATORS: Final = frozenset(
    {
        Call.START_REPLICATION,
        Call.STOP_REPLICATION,
        Call.ADD_RULE,
        Call.REMOVE_RULE,
        Call.REBALANCE,
        Call.SET_TUNABLE,
    }
)


class RegistryGuest:
    """Serves one registry. `is_operator` says of a caller whether it may change the topology of others."""

    calls = tuple(Call)

    def __init__(self, registry: Registry, is_operator: Callable[[str], bool]) -> None:
        self._registry = registry
        self._is_operator = is_operator

    def opened(self, _ticket: bytes, _is_over: Callable[[], bool]) -> tuple[pa.Schema, Iterator[Any]] | None:
        return None

    def answered(self, peer: str, call: str, said: bytes) -> Iterator[bytes]:
        if call in _OPERATORS and not self._is_operator(peer):
            what = "only operators may change the topology"
            raise TailraceError("relay.no_rights", what, hint="say what the node file has as `operator`")
        for paper in _ANSWERS[Call(call)](self._registry, said):
            yield paper.packed()


_Answers = Iterator[Paper]


def _register(registry: Registry, said: bytes) -> _Answers:
    asked = RegisterReplicant.read(said)
    found = registry.register_replicant(asked.site, asked.report, sources=asked.sources, unreachable=asked.unreachable)
    yield Offered.of(found)


def _update(registry: Registry, said: bytes) -> _Answers:
    asked = UpdateRegistry.read(said)
    yield Updated.of(registry.update_registry(asked.site, asked.source, unreachable=asked.unreachable))


def _keepalive(registry: Registry, said: bytes) -> _Answers:
    asked = Keepalive.read(said)
    yield Kept(answer=registry.keepalive(asked.site, asked.report))


def _reset(registry: Registry, said: bytes) -> _Answers:
    asked = ResetNodes.read(said)
    registry.reset_nodes(asked.sites, asked.state)
    yield from ()


def _topology(registry: Registry, _said: bytes) -> _Answers:
    rows = iter(registry.topology())
    while some := list(islice(rows, ROWS_MAX)):
        yield Rows(rows=some)


def _reverse_hosts(registry: Registry, said: bytes) -> _Answers:
    yield Some(sites=list(registry.get_reverse_hosts(One.read(said).site)))


def _should_wait(registry: Registry, said: bytes) -> _Answers:
    yield Waits(waits=registry.should_wait_for_con(One.read(said).site))


def _start(registry: Registry, said: bytes) -> _Answers:
    registry.start_replication(Some.read(said).sites)
    yield from ()


def _stop(registry: Registry, said: bytes) -> _Answers:
    registry.stop_replication(Some.read(said).sites)
    yield from ()


def _add_rule(registry: Registry, said: bytes) -> _Answers:
    asked = Rule.read(said)
    registry.add_rule(asked.replica, asked.source)
    yield from ()


def _remove_rule(registry: Registry, said: bytes) -> _Answers:
    asked = Rule.read(said)
    registry.remove_rule(asked.replica, asked.source)
    yield from ()


def _rebalance(registry: Registry, said: bytes) -> _Answers:
    yield Moved(move=registry.rebalance(Database.read(said).database))


def _tunables(registry: Registry, said: bytes) -> _Answers:
    yield Settings.of(registry.tuning(OfLog.read(said).database or ""))


def _set_tunable(registry: Registry, said: bytes) -> _Answers:
    asked = SetTunable.read(said)
    if asked.database is None:
        registry.set_tunable(asked.name, asked.text)
    else:
        registry.set_tunable_of(asked.database, asked.name, asked.text)
    yield from ()


_ANSWERS: Final[dict[Call, Callable[[Registry, bytes], _Answers]]] = {
    Call.REGISTER_REPLICANT: _register,
    Call.UPDATE_REGISTRY: _update,
    Call.KEEPALIVE: _keepalive,
    Call.RESET_NODES: _reset,
    Call.TOPOLOGY: _topology,
    Call.GET_REVERSE_HOSTS: _reverse_hosts,
    Call.SHOULD_WAIT_FOR_CON: _should_wait,
    Call.START_REPLICATION: _start,
    Call.STOP_REPLICATION: _stop,
    Call.ADD_RULE: _add_rule,
    Call.REMOVE_RULE: _remove_rule,
    Call.REBALANCE: _rebalance,
    Call.TUNABLES: _tunables,
    Call.SET_TUNABLE: _set_tunable,
}
