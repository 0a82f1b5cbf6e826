"""Packets as bytes."""

from __future__ import annotations

from tailrace.adaptor.tarantool import iproto


def test_a_packet_that_comes_in_pieces() -> None:
    whole = iproto.encode({0: 1}, {2: 3})
    for cut in range(len(whole)):
        starts, end = _walk(whole + whole[:cut])
        assert len(list(iproto.decode_all(whole + whole[:cut], starts, end))) == 1
        starts, end = _walk(whole[:cut])
        assert list(iproto.decode_all(whole[:cut], starts, end)) == []


def _walk(data: bytes) -> tuple[list[int], int]:
    """Where whole packets begin, and where they end."""
    starts, at = [], 0
    while at + 5 <= len(data) and at + 5 + iproto.packet_bytes(data, at) <= len(data):
        starts.append(at)
        at += 5 + iproto.packet_bytes(data, at)
    return starts, at
