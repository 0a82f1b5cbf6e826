"""What copies ask of the log that they are copied from, and what it answers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from tailrace.limits import FRAME_BYTES_MAX, U64_MAX
from tailrace.relay.paper import Paper

MATCHES_MAX: Final = 1000
"""So many frames are compared with one question."""

LogId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Number = Annotated[int, Field(ge=0, le=U64_MAX)]
Edition = Annotated[str, Field(pattern=r"^[0-9a-f]{16,64}$")]
"""Another one as soon as bytes that were given away may have been replaced."""
HOPS_MAX: Final = 1000
Server = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
"""Another one whenever somebody begins to serve a log."""
CopyName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")]
"""Under which a source keeps its log for a copy."""


class Call(StrEnum):
    """What a copy asks for."""

    EXTENT = "extent"
    MATCH = "match"
    KEEP = "keep"
    LEAVE = "leave"


class Extent(Paper):
    """What a log has, durably."""

    log: LogId
    generation: Number
    first: Number
    """Its oldest segment."""
    base: Number
    """Its newest segment."""
    position: Number
    """The bytes of the newest segment."""
    next_offset: Number
    edition: Edition
    above: Annotated[list[Server], Field(max_length=HOPS_MAX)] = Field(default_factory=list)
    """Who serves it, from whom that one copies it, and so on up: nobody copies what it serves itself."""


class Place(Paper):
    """Some bytes of a log."""

    base: Number
    position: Number
    size: Annotated[int, Field(ge=1, le=FRAME_BYTES_MAX)]


class Match(Paper):
    """What has the source at these places?"""

    places: Annotated[list[Place], Field(max_length=MATCHES_MAX)]


class Matched(Paper):
    """SHA-256 of each, empty where there is nothing."""

    digests: Annotated[list[Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]], Field(max_length=MATCHES_MAX)]


class Keep(Paper):
    """The log is to be kept for a copy, and for those that copy it, from an offset on."""

    name: CopyName
    offset: Number


class Leave(Paper):
    """A copy goes elsewhere or ends, by its own wish."""

    name: CopyName


class Pull(Paper):
    """The bytes from a place on are wanted."""

    name: CopyName
    log: LogId
    edition: Edition
    """In which the copy was matched."""
    base: Number
    position: Number
    waits: bool
    """Whether what comes later is sent too, as it comes; otherwise the answer ends with the log."""


class Piece(Paper):
    """Where bytes are that were sent, and how far the source is. Without bytes it only says that."""

    base: Number
    position: Number
    next_offset: Number
    """Of the source."""
    behind_bytes: Number
    """How much comes after these."""
    generation: Number
    age_s: Annotated[float, Field(ge=0)] = 0.0
    """How long ago the log itself was heard of, at the top of all its copies."""
