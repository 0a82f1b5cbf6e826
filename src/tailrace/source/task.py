"""What a task does for capture: read one piece of the source and stage it beside the log."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.log.frame import Codec
from tailrace.log.staging import Staging
from tailrace.source.contract import Piece

if TYPE_CHECKING:
    from tailrace.adaptor.options import ReaderOptions
    from tailrace.spark.tasks import Receipt


@dataclass(frozen=True, slots=True)
class CaptureItem:
    """One piece, of the changes when it has no namespace, else of the copy of that namespace."""

    number: int
    """Its place in the turn."""
    piece: Piece
    namespace: str | None = None
    piece_number: int = 0
    """Its place in the plan of the copy."""


@dataclass(frozen=True, slots=True)
class StagePieces:
    """Reads pieces of one source for one batch."""

    options: ReaderOptions
    directory: str
    batch_id: str
    codec: Codec = Codec.LZ4

    def __call__(self, item: CaptureItem) -> Receipt:
        reader = self.options.open()
        rows: Counter[str] = Counter()
        try:
            batches = (
                reader.read_changes(item.piece)
                if item.namespace is None
                else reader.read_copy(item.namespace, item.piece)
            )
            with Staging(self.directory, codec=self.codec).writer(self.batch_id, f"piece-{item.number}") as staged:
                for batch in batches:
                    staged.add(batch)
                    rows[batch.namespace] += len(batch)
                kept = staged.close()
            reached = reader.reached()
        finally:
            reader.close()
        told: dict[str, Any] = {"name": kept.name, "frames": kept.frames, "messages": kept.messages, "size": kept.size}
        return {"staged": told, "rows": dict(rows), "reached": reached}
