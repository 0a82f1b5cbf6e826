"""Hashes of byte strings, a column at a time: eight bytes of all strings, then the next eight of the longer ones."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]

_WORD: Final = 8
_LONG: Final = 4096
"""Longer strings are few, and hashed one by one."""


def mix(numbers: Hashes) -> Hashes:
    """Numbers stirred so that every bit depends on every bit (splitmix64)."""
    stirred = numbers + np.uint64(0x9E3779B97F4A7C15)
    stirred = (stirred ^ (stirred >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    stirred = (stirred ^ (stirred >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return stirred ^ (stirred >> np.uint64(31))


def hash_spans(column: pa.Array[Any], salt: np.uint64) -> Hashes:
    """The hash of every value of a column of text or binary; what nulls have is of no use."""
    wide: Any = column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column
    wide = wide.cast(pa.large_binary())
    _, offsets, content = wide.buffers()
    if not len(wide) or offsets is None:
        return np.zeros(len(wide), np.uint64)
    borders = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + len(wide) + 1]
    data = np.frombuffer(content, np.uint8) if content is not None and content.size else np.zeros(0, np.uint8)
    starts, lengths = borders[:-1] - borders[0], np.diff(borders)
    padded = np.concatenate([data[borders[0] : borders[-1]], np.zeros(_WORD, np.uint8)])
    return _hash(padded, starts, lengths, salt)


def _hash(data: npt.NDArray[np.uint8], starts: Any, lengths: Any, salt: np.uint64) -> Hashes:
    words: Any = np.ndarray(len(data) - _WORD + 1, "<u8", data, strides=(1,))  # one begins at every byte
    hashes = mix(lengths.astype(np.uint64) ^ salt)
    live, done = np.flatnonzero((lengths > 0) & (lengths <= _LONG)), 0
    while len(live):
        left = lengths[live] - done
        unused = np.uint64(8) * np.clip(_WORD - left, 0, _WORD - 1).astype(np.uint64)
        word = words[starts[live] + done].astype(np.uint64) & (np.uint64(0xFFFFFFFFFFFFFFFF) >> unused)
        hashes[live] = mix(hashes[live] ^ word)
        done += _WORD
        live = live[left > _WORD]
    for at in np.flatnonzero(lengths > _LONG):
        digest = blake2b(data[starts[at] : starts[at] + lengths[at]].tobytes(), digest_size=_WORD).digest()
        hashes[at : at + 1] = mix(hashes[at : at + 1] ^ np.frombuffer(digest, "<u8"))
    return hashes
