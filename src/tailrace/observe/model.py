"""The status model: what runs, where it stands, how far behind it is, and what is wrong.

Command line, page, JSON API and metrics all show this, in these words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tailrace.errors import TailraceError
from tailrace.units import show_bytes, show_seconds

if TYPE_CHECKING:
    from tailrace.log.lag import Lag as LogLag


class Kind(StrEnum):
    """What a part is."""

    READER = "reader"
    WRITER = "writer"
    CONSUMER = "consumer"
    """Anybody else who reads the log under a name of its own."""
    SOURCE = "source"
    """A node that this one follows."""
    PEER = "peer"
    """A node that follows this one."""
    REPLICA = "replica"
    STORE = "store"
    QUEUE = "queue"
    """What one client sends to one site."""
    RECEIVED = "received"
    """What comes from one site for one client."""
    SNAPSHOT = "snapshot"
    """All data of one client, which somebody has to supply for some sites."""
    SYNC = "sync"
    """A node with which tables are synced."""
    TABLE = "table"
    """A table that is synced."""


_UNSEEN = frozenset({Kind.STORE, Kind.QUEUE, Kind.RECEIVED, Kind.SNAPSHOT, Kind.TABLE})
Figures = Mapping[str, str | int | float | bool | None]
"""What else there is to know, by what it is called; a name that ends with `bytes` has bytes."""


class Health(StrEnum):
    """How a part is, at a glance."""

    GOOD = "good"
    WAITING = "waiting"
    """It does not run, or is not heard of, and nothing says that this is wrong."""
    TROUBLED = "troubled"
    """It goes on, but somebody should look."""
    BAD = "bad"
    """It does not go on until somebody helps."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far behind a part is; None is what nobody knows."""

    messages: int
    bytes: int | None
    seconds: float | None
    """The age of the oldest of them."""

    @classmethod
    def of(cls, found: LogLag) -> Lag:
        return cls(found.messages, found.bytes, found.seconds)


@dataclass(frozen=True, slots=True)
class Wrong:
    """What is wrong, and its cure."""

    code: str
    what: str
    cure: str = ""
    age_s: float | None = None

    @classmethod
    def of(cls, error: TailraceError | Mapping[str, Any] | None, age_s: float | None = None) -> Wrong | None:
        if error is None:
            return None
        told = error if isinstance(error, TailraceError) else TailraceError.decode(error)
        where = f" ({told.place})" if told.place else ""
        return cls(told.code, f"{told.what}{where}", told.hint, age_s)


@dataclass(frozen=True, slots=True)
class Stuck:
    """Messages that a writer could not write."""

    first: int
    last: int
    what: str
    age_s: float
    is_single: bool
    """Whether the first is the very message at fault, which can be acknowledged."""

    @property
    def messages(self) -> int:
        """How many they are; of those behind the one at fault nobody knows yet."""
        return 1 if self.is_single else self.last - self.first + 1

    @property
    def which(self) -> str:
        return f"message {self.first}" if self.is_single else f"messages {self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class Part:
    """Something that runs."""

    kind: Kind
    name: str
    where: str
    state: str
    health: Health
    position: int | None = None
    """The last offset up to which it has everything, -1 when it has nothing; None where there is no such thing."""
    lag: Lag | None = None
    """None: nobody knows."""
    rate: float | None = None
    """Messages or rows a second, of the last samples; None before there are two."""
    seen_s_ago: float | None = None
    """The age of the last proof of life; None: there never was one, or nobody keeps it."""
    wrong: Wrong | None = None
    stuck: Stuck | None = None
    steps: tuple[str, ...] = ()
    """The functions that messages go through on their way to it."""
    more: Figures = field(default_factory=dict)
    moved: int | None = None
    """How many rows it has moved since it began to run, where it has no position."""

    def away(self) -> Part:
        """The same when the process that told of it does not run any more."""
        health = Health.WAITING if self.health is Health.GOOD else self.health
        return replace(self, state=f"not running, was {self.state}", health=health)

    @property
    def goes_on(self) -> bool:
        """Whether it runs and needs nobody for that."""
        return self.health in (Health.GOOD, Health.TROUBLED)

    @property
    def extra(self) -> str:
        """What else there is to know, in words."""
        return _in_words(self.more)

    @property
    def seen(self) -> str:
        """When it was last heard of, in words; nothing where nobody keeps that."""
        if self.seen_s_ago is not None:
            return f"{show_seconds(self.seen_s_ago)} ago"
        return "" if self.kind in _UNSEEN else "never"


@dataclass(frozen=True, slots=True)
class NamespacePart:
    """A namespace of the log."""

    name: str
    messages: int
    bytes: int
    last: int
    """The offset of its last message."""
    phase: str | None = None
    """How far its copy is, where a pipeline copies it."""
    rows: int | None = None
    """About how many its copy has; None when the source did not say."""
    rows_copied: int | None = None
    pieces: int | None = None
    pieces_copied: int | None = None

    @property
    def copied(self) -> str:
        """How much of it is copied, in words."""
        if self.rows_copied is None:
            return ""
        return f"{self.rows_copied:,}" + ("" if self.rows is None else f" of about {self.rows:,}")


@dataclass(frozen=True, slots=True)
class LogPart:
    """A log, and for whom it is kept."""

    directory: str
    oldest: int
    next_offset: int
    messages: int
    bytes: int
    held_bytes: Mapping[str, int] = field(default_factory=dict)
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A node of a topology."""

    name: str
    below: str | None
    """From whom it copies; None at the top, and for those who are cut off."""
    database: str
    tier: int | None
    state: str
    health: Health
    told: str
    """How it is, in words."""
    seen_s_ago: float | None = None


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything that one process does, at one moment."""

    name: str
    what: str
    """`pipeline`, `node`, `replica` or `sync`."""
    at_s: float
    """Seconds since 1970."""
    is_running: bool | None
    """None: nobody knows."""
    runs_as: str = ""
    told_s_ago: float | None = None
    """The age of what a node has said of itself; None where all was seen just now."""
    log: LogPart | None = None
    namespaces: tuple[NamespacePart, ...] = ()
    parts: tuple[Part, ...] = ()
    tree: tuple[TreeNode, ...] = ()
    wrong: tuple[Wrong, ...] = ()
    """What concerns all of it."""
    more: Figures = field(default_factory=dict)

    def encode(self) -> dict[str, Any]:
        """For programs."""
        return {**asdict(self), "health": self.health}

    def only(self, *kinds: Kind) -> Overview:
        """The same of parts of some kinds alone."""
        return replace(self, parts=tuple(self.of(*kinds)), namespaces=(), tree=())

    @property
    def extra(self) -> str:
        """What else there is to know, in words."""
        return _in_words(self.more)

    @property
    def runs(self) -> str:
        """Whether it runs, in words."""
        if self.is_running is not False:
            return self.runs_as
        heard = "" if self.told_s_ago is None else f", heard of {show_seconds(self.told_s_ago)} ago"
        return f"does not run{heard}"

    def of(self, *kinds: Kind) -> list[Part]:
        return [part for part in self.parts if part.kind in kinds]

    @property
    def health(self) -> Health:
        """As bad as its worst part."""
        if self.wrong:
            return Health.BAD
        order = list(Health)
        found = [part.health for part in self.parts] or [Health.WAITING]
        if any(node.health is Health.BAD for node in self.tree):
            found.append(Health.TROUBLED)  # this one goes on, and another one does not
        worst = max(found, key=order.index)
        if worst is Health.WAITING and Health.GOOD in found:
            return Health.GOOD
        return worst


def _in_words(more: Figures) -> str:
    told = {name: value for name, value in more.items() if value}
    return ", ".join(
        f"{name} {show_bytes(value) if name.endswith('bytes') and isinstance(value, int) else value}"
        for name, value in told.items()
    )
