"""Packets as bytes."""

from __future__ import annotations

from tailrace.adaptor.tarantool import iproto
from tailrace.adaptor.tarantool.frames import walk


def test_a_packet_that_comes_in_pieces() -> None:
    whole = iproto.encode({0: 1}, {2: 3})
    for cut in range(len(whole)):
        for data, packets in ((whole[:cut], 0), (whole + whole[:cut], 1)):
            assert len(list(iproto.decode_all(data, *walk(data)))) == packets
