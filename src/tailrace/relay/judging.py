"""What of a log is left out for those who apply it in order: messages that lost against one that came before them.

Of two changes of one row at the same time all stores keep the newer one, in whichever order they come. Whoever only
has the order of a log would end with the one that came last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.deliver.messages import Messages
from tailrace.log.batch import Batch, decode_body, encode_frame, key_of
from tailrace.message import NodeId, Op

if TYPE_CHECKING:
    from tailrace.node.store import Store
    from tailrace.relay.outgoing import Frame
    from tailrace.relay.vclock import Vclock

_CHANGES: Final = (Op.INSERT, Op.UPDATE, Op.DELETE)


def unbeaten(frame: Frame, store: Store, before: Vclock) -> Frame | None:
    """A frame without the messages that lost against one of another node that was there `before`; None when all did."""
    head, body = frame
    rows = decode_body(body)
    key = key_of(rows.schema)
    if not key or any(op not in _CHANGES for op in pc.unique(rows.column("op")).to_pylist()):
        return frame
    messages = Messages(head.namespace, rows, key, head.mode, head.origin)
    lost = store.beaten(messages, lambda origin, lsn: lsn <= before[NodeId(origin)])
    if not any(lost):
        return frame
    if all(lost):
        return None
    kept = rows.filter(pa.array([not each for each in lost], pa.bool_()))
    return encode_frame(Batch(head.namespace, kept, head.mode, head.origin), head.codec)
