"""One server for all tests of a process, emptied after each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import tarantool as servers
from tests.servers.tarantool import TarantoolServer

EMPTY = """
for _, s in box.space._space:pairs({512}, {iterator = 'GE'}) do box.space[s.id]:drop() end
for _, r in box.space._cluster:pairs() do if r[1] ~= box.info.id then box.space._cluster:delete(r[1]) end end
"""


@pytest.fixture(scope="session")
def one_tarantool() -> Iterator[TarantoolServer]:
    if why := servers.missing():
        pytest.skip(why)
    server = TarantoolServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture
def tarantool(one_tarantool: TarantoolServer) -> Iterator[TarantoolServer]:
    """A server without spaces."""
    yield one_tarantool
    one_tarantool.run(EMPTY)


@pytest.fixture
def own_server(one_tarantool: TarantoolServer) -> Iterator[TarantoolServer]:
    """A server that a test may kill; that of all others says whether there is one at all."""
    server = TarantoolServer()
    server.start()
    yield server
    server.remove()
