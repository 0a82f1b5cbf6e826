"""Damaging files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def overwrite(path: Path, raw: bytes) -> None:
    """Give a file other content without emptying it first, for which ext4 would wait for the disk."""
    path.touch()
    with path.open("r+b") as file:
        file.write(raw)
        file.truncate()


def flipped(raw: bytes, bit: int) -> bytes:
    changed = bytearray(raw)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def every_flip(raw: bytes) -> Iterator[bytes]:
    return (flipped(raw, bit) for bit in range(len(raw) * 8))
