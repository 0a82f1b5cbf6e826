"""How much a log still knows of a namespace: from where on its state can be told."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.errors import Place, TailraceError
from tailrace.log.reader import LogReader
from tailrace.message import Mode, Offset, Op


@dataclass(frozen=True, slots=True)
class History:
    """One namespace up to some offset."""

    directory: str
    namespace: str
    begin: Offset
    """Where reading begins: at the last copy that is whole, or at the log's begin when it holds everything."""
    complete_from: Offset | None
    """From this offset on its state can be told; None when the log has never held all of it."""
    why: str = ""
    """What is wrong with earlier offsets."""

    def check(self, at: Offset) -> None:
        """Refuse an offset whose state cannot be told."""
        if self.complete_from is not None and at >= self.complete_from:
            return
        what = f"the state of {self.namespace} at offset {at} is not in the log: {self.why}"
        hint = (
            "let the pipeline copy it again, into a new log"
            if self.complete_from is None
            else f"it can be rebuilt from offset {self.complete_from} on: --at {self.complete_from}"
        )
        raise TailraceError("log.below_oldest", what, place=Place(self.directory), hint=hint)


def trace(reader: LogReader, namespace: str, at: Offset) -> History:
    """Walk the heads of the log. The marks of a copy's begin and end tell what is whole, holes what was removed."""
    oldest = reader.oldest
    begun: Offset | None = None
    whole: tuple[Offset, Offset] | None = None
    first: Offset | None = None
    last_hole: Offset | None = None
    for head in reader.view.heads(oldest):
        if head.is_hole:
            last_hole = head.offset
        elif head.namespace == namespace:
            first = head.offset if first is None else first
            if head.op is Op.NOOP and head.mode is Mode.COPY:
                begun = head.offset
            elif head.op is Op.NOOP and head.mode is Mode.COMPLETE and begun is not None:
                if whole is None or head.offset <= at:
                    whole = begun, head.offset
                begun = None
    is_everything = oldest == 0 and begun is None and last_hole is None
    if whole is not None:
        begin, complete_from, why = whole[0], whole[1], f"its copy ends at offset {whole[1]}"
    elif is_everything and first is not None:
        begin, complete_from, why = Offset(0), first, f"it begins at offset {first}"
    else:
        why = (
            "its copy has not ended yet" if begun is not None else f"its copy was before offset {oldest}, which is gone"
        )
        return History(reader.directory, namespace, oldest, None, why)
    if last_hole is not None and last_hole >= begin:
        # what compaction removed may have been superseded by any message of the segments that were sealed then
        sealed_end = Offset(max(complete_from, reader.view.head().base - 1))
        return History(
            reader.directory, namespace, begin, sealed_end, "the log was compacted, earlier rows may be gone"
        )
    return History(reader.directory, namespace, begin, complete_from, why)
