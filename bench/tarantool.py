"""What Tarantool costs as a source, against a plain loop of msgpack on the same server, in the same run.

The snapshot from the wire into columns, through the image; and changes, each of which needs the row that it changes.
"""

from __future__ import annotations

import argparse
import struct
import sys
import tempfile
import time
from pathlib import Path

import msgpack
import pandas as pd  # Arrow looks for it with the first scalar, which takes a second
from figures import Figures

from tailrace.adaptor.tarantool.connection import Connection
from tailrace.adaptor.tarantool.iproto import Type
from tailrace.adaptor.tarantool.options import TarantoolReaderOptions
from tailrace.adaptor.tarantool.server import Server

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.servers.tarantool import PASSWORD, USER, TarantoolServer

MAKE = """
local fields = {{'id', 'unsigned'}, {'name', 'string'}, {'n', 'integer'}, {'rate', 'number'}, {'is_paid', 'boolean'}}
local s = box.schema.space.create('rows', {format = fields})
s:create_index('pk')
for i = 1, %d do
    if i %% 1000 == 1 then box.begin() end
    s:insert{i, 'Customer number ' .. i, i * 7, i / 4, i %% 2 == 0}
    if i %% 1000 == 0 then box.commit() end
end
"""
CHANGE = """
local s = box.space.rows
for i = 1, %d do
    if i %% 100 == 1 then box.begin() end
    s:update(i, {{'+', 'n', 1}, {'=', 'name', 'changed'}})
    if i %% 100 == 0 then box.commit() end
end
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about half a minute: fewer rows")
    options = parser.parse_args()
    figures = Figures("tarantool")
    run(figures, 200_000 if options.quick else 1_000_000)
    figures.print()


def run(figures: Figures, rows: int) -> None:
    assert pd.__version__
    server = TarantoolServer({"memtx_memory": 2 << 30, "replication_timeout": 1})
    server.start()
    try:
        server.run(MAKE % rows)
        with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
            measure(figures, server, directory, rows)
    finally:
        server.remove()


def measure(figures: Figures, server: TarantoolServer, directory: str, rows: int) -> None:
    plain_s = plain_loop(server, rows)
    said = {"address": server.address(), "log": directory, "pipeline": "bench"}
    reader = TarantoolReaderOptions.model_validate(said).open()
    tables = reader.tables()
    began, worked = time.perf_counter(), time.process_time()
    reader.install(tables)
    fetched_s = time.perf_counter() - began
    copied = sum(len(b) for t in tables for p in reader.plan_copy(t) for b in reader.read_copy(t.namespace, p))
    taken_s, worked_s = time.perf_counter() - began, time.process_time() - worked
    assert copied == rows
    figures.add(
        "tarantool_snapshot", rows / taken_s, at_least=200_000, unit="rows/s of 5 columns, wire to Arrow batches"
    )
    figures.add("tarantool_fetched", fetched_s / taken_s, unit="of that time until all of it was in the image")
    figures.add("tarantool_worked", rows / worked_s, unit="rows for each second of our own work")
    figures.add("tarantool_ratio", plain_s / taken_s, at_least=2.4, unit="x as fast as a plain loop of msgpack")
    start = reader.position()
    changes = min(rows, 150_000)
    server.run(CHANGE % changes)
    for what in ("first", "later"):  # the first change of a space makes its rows ones that are found by key
        began = time.perf_counter()
        for piece in reader.plan_changes(start, reader.position()):
            read = sum(len(batch) for batch in reader.read_changes(piece))
            assert read == changes
        figures.add(
            f"tarantool_changes_{what}",
            changes / (time.perf_counter() - began),
            unit="updates/s, rows before and after",
        )
    reader.close()


def plain_loop(server: TarantoolServer, rows: int) -> float:
    """Every packet decoded as it comes."""
    with Connection(Server("127.0.0.1", server.port, USER, PASSWORD)) as connection:
        began = time.perf_counter()
        connection.send(Type.FETCH_SNAPSHOT)
        data, found, oks = b"", 0, 0
        while oks < 2:
            data += connection.receive()
            at = 0
            while len(data) - at >= 5:
                (length,) = struct.unpack_from(">I", data, at + 1)
                if len(data) - at - 5 < length:
                    break
                unpacker = msgpack.Unpacker(strict_map_key=False)
                unpacker.feed(data[at + 5 : at + 5 + length])
                header, body = unpacker
                oks += header[0] == Type.OK
                found += body.get(16) == 512
                at += 5 + length
            data = data[at:]
        assert found == rows
        return time.perf_counter() - began


if __name__ == "__main__":
    main()
