"""A stretch of the log: what one batch of a writer covers. It ends where a commit group ends."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tailrace.deliver.clearing import Clear, is_clearing
from tailrace.deliver.messages import Messages, no_messages
from tailrace.deliver.schemas import schema_of, unified
from tailrace.deliver.task import DeliverItem
from tailrace.limits import U64_MAX
from tailrace.log.frame import Head
from tailrace.log.selection import whole_frame
from tailrace.log.view import LogView
from tailrace.message import Mode, Offset, Op
from tailrace.namespace import RESERVED


@dataclass(slots=True)
class Share:
    """What a stretch has of one namespace."""

    first: Offset
    end: Offset
    messages: int = 0
    bytes: int = 0
    frames: list[tuple[Offset, Offset, int]] = field(default_factory=list)
    """The first offset, the end and the bytes of each frame."""
    is_copy: bool = True
    """Whether all its messages are rows of one copy."""
    copy: Offset | None = None
    """Where a copy begins, when it does so here."""
    schema: pa.Schema | None = None
    """What its rows look like, when it was asked for: fields of all frames, each with a type that holds all values."""
    forms: list[Form] = field(default_factory=list)
    """How that changes on the way."""
    announced: pa.Schema | None = None
    """What its rows would look like, by the mark of a copy that had none."""

    def note(self, head: Head, start: Offset, limit: Offset) -> None:
        """Learn from a frame."""
        if head.op is Op.NOOP:
            if head.mode is Mode.COPY:  # the mark of a copy's begin
                self.copy = head.offset
                self.is_copy = self.is_copy and not self.frames
            return
        if head.op is Op.COMMAND:
            return
        self.is_copy = self.is_copy and head.mode is Mode.COPY and head.op is Op.INSERT
        self.end = min(limit, head.end)
        self.messages += min(head.messages, self.end - max(start, head.offset))
        self.bytes += head.frame_bytes
        self.frames.append((max(start, head.offset), self.end, head.frame_bytes))

    def learn(self, head: Head, schema: pa.Schema) -> None:
        """Learn what the rows of the last frame look like."""
        self.schema = unified(self.schema, schema)
        # a document on its own is always whole
        updated = _fields(schema) if head.is_batch and head.op in (Op.UPDATE, None) else None
        if not self.forms or not self.forms[-1].takes(schema, updated):
            self.forms.append(Form(len(self.frames) - 1, schema, updated))

    def parts(self) -> list[Share]:
        """The share in parts whose updates have all fields that any message of the part has: an update leaves a field
        that it does not have as it is, but among rows that have it, it would be null."""
        if len(self.forms) == 1:
            return [self]
        ends = [form.first for form in self.forms[1:]] + [len(self.frames)]
        return [self._part(form, end) for form, end in zip(self.forms, ends, strict=True)]

    def _part(self, form: Form, end: int) -> Share:
        frames = self.frames[form.first : end]
        return replace(
            self,
            first=frames[0][0],
            end=frames[-1][1],
            messages=sum(end - first for first, end, _ in frames),
            bytes=sum(frame_bytes for _, _, frame_bytes in frames),
            frames=frames,
            schema=form.schema,
            forms=[form],
        )


@dataclass(slots=True)
class Form:
    """What the rows of some frames of a share look like."""

    first: int
    """Where these begin, among the frames of the share."""
    schema: pa.Schema
    updated: frozenset[str] | None
    """The fields of its updates, if there are any."""

    def takes(self, schema: pa.Schema, updated: frozenset[str] | None) -> bool:
        """Whether another frame can be of this form, which it then is."""
        both = unified(self.schema, schema)
        if any(names is not None and names != _fields(both) for names in (self.updated, updated)):
            return False
        self.schema, self.updated = both, self.updated or updated
        return True


@dataclass(slots=True)
class Stretch:
    """From `start` up to, not including, `end`; what no writer gets is not in `shares`."""

    start: Offset
    end: Offset
    shares: dict[str, Share] = field(default_factory=dict)
    clears: list[Clear] = field(default_factory=list)
    """Where namespaces were emptied: everything before must be written before, and what follows afterwards."""

    @property
    def messages(self) -> int:
        """How many messages there are to write."""
        return sum(share.messages for share in self.shares.values())

    def written(self) -> dict[str, Share]:
        """The shares that hold something to write."""
        return {name: share for name, share in self.shares.items() if share.frames}

    def announced(self) -> list[Messages]:
        """For each namespace of which there are no rows, but somebody said what they would look like: no messages of
        that form."""
        found = [(name, share.announced) for name, share in self.shares.items() if not share.frames]
        return [no_messages(name, schema) for name, schema in found if schema is not None]


def measure(
    view: LogView,
    start: Offset,
    namespace: re.Pattern[str],
    bytes_max: int,
    *,
    limit: Offset | None = None,
    with_schemas: bool = False,
    acknowledged: frozenset[int] = frozenset(),
) -> Stretch:
    """The stretch from `start` on: at least one commit group, and no more than fits `bytes_max`. At `limit` it ends,
    even inside a group. Frames of which all messages are acknowledged are passed over."""
    stretch = Stretch(start, start)
    last = Offset(U64_MAX) if limit is None else limit
    held, seen = 0, start
    for segment, located in view.walk(start):
        head = located.head
        if head.offset >= last:
            break
        is_wanted = not head.is_hole and is_delivered(head.namespace) and namespace.search(head.namespace)
        if is_wanted and not (acknowledged and acknowledged.issuperset(range(head.offset, head.end))):
            share = stretch.shares.setdefault(head.namespace, Share(max(start, head.offset), head.end))
            share.note(head, start, last)
            held += head.frame_bytes
            if head.op is Op.NOOP and head.mode is Mode.COMPLETE and head.is_batch:
                marked = schema_of(segment, located)
                share.announced = marked if len(marked.field("data").type) else None
            if head.op is Op.COMMAND and is_clearing(whole_frame(segment, located)):
                stretch.clears.append(Clear(head.offset, head.namespace))
            if with_schemas and head.op not in (Op.NOOP, Op.COMMAND):
                share.learn(head, schema_of(segment, located))
        seen = min(last, head.end)
        if head.closes_group:
            stretch.end = seen
            if held >= bytes_max:
                return stretch
    stretch.end = seen  # the published log ends where a group ends
    return stretch


def divide(namespace: str, share: Share, tasks: int) -> tuple[DeliverItem, ...]:
    """A share's frames as up to `tasks` ranges of about the same size."""
    goal = max(1, share.bytes // max(1, tasks))
    found: list[DeliverItem] = []
    first, size = share.frames[0][0], 0
    for at, (_, end, frame_bytes) in enumerate(share.frames):
        size += frame_bytes
        is_last = at == len(share.frames) - 1
        if size >= goal or is_last:
            found.append(DeliverItem(first, end, (namespace,)))
            if not is_last:
                first, size = share.frames[at + 1][0], 0
    return tuple(found)


def _fields(schema: pa.Schema) -> frozenset[str]:
    """The names of the fields of `data`."""
    return frozenset(entry.name for entry in schema.field("data").type)


def is_delivered(namespace: str) -> bool:
    """Whether writers get messages of a namespace."""
    return not namespace.startswith(RESERVED)
