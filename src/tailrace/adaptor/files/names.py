"""What a file is called as a namespace, and a namespace as a file."""

from __future__ import annotations

import hashlib
from typing import Final

from tailrace.limits import NAME_BYTES_MAX
from tailrace.namespace import check_name

_FILE_STEM_BYTES_MAX: Final = 200
"""Leaves room for the suffixes of the data file, its side file and the draft of that, within 255 bytes."""


def namespace_of(stem: str) -> str:
    """The namespace of a file without its extensions; what no namespace may hold is written as %XX."""
    return check_name("files." + _shorten(_escape(stem, "%\\/"), NAME_BYTES_MAX - len("files.")), "namespace")


def file_stem_of(namespace: str) -> str:
    """The file name of a namespace, without extension; different namespaces have different names."""
    stem = _shorten(_escape(namespace, '%\\/:*?"<>|'), _FILE_STEM_BYTES_MAX)
    return f"%{ord(stem[0]):02X}{stem[1:]}" if stem[0] in ".-~" else stem


def _escape(name: str, special: str) -> str:
    return "".join(
        character if character.isprintable() and character not in special else _percent(character) for character in name
    )


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def _shorten(name: str, bytes_max: int) -> str:
    """A long name is cut and told apart by a digest of all of it."""
    encoded = name.encode()
    if len(encoded) <= bytes_max:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:16]
    return encoded[: bytes_max - len(digest) - 1].decode(errors="ignore") + "~" + digest
