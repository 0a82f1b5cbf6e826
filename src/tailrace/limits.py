"""How big things may be. Every length that comes from outside is checked here before anything is allocated for it."""

from __future__ import annotations

from typing import Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

U32_MAX: Final = (1 << 32) - 1
U64_MAX: Final = (1 << 64) - 1

NAME_BYTES_MAX: Final = 255
"""A namespace, destination, consumer or batch id that we write."""

KEY_BYTES_MAX: Final = 4 * KIB
"""A namespace that we read: other programs' logs may hold longer ones than we would write."""

FRAME_BYTES_MAX: Final = 64 * MIB
"""One frame on disk and on the wire, header included."""

FRAME_ROWS_MAX: Final = 1 << 20
"""Messages in one frame."""

FRAME_UNPACKED_BYTES_MAX: Final = 512 * MIB
"""The rows of a frame that came from another node, or goes to one, without compression."""

TAGS_BYTES_MAX: Final = MIB
"""The destinations and batch ids of one frame."""

SEGMENT_BYTES_DEFAULT: Final = GIB
"""A segment that has grown to this size is sealed before the next group."""

INDEX_INTERVAL_BYTES: Final = 256 * KIB
"""At most this many bytes are walked after a look-up in the sparse index."""

COMPRESS_BYTES_MIN: Final = 64 * KIB
"""Smaller batches are stored as they are: setting up a compressor costs more than it saves."""

CONTENTS_BYTES_MAX: Final = 256 * MIB
"""One segment's table of contents."""

OFFSET_FLUSH_S: Final = 1.0
"""How long a committed offset may wait before it is on disk (I4)."""

STAGING_KEEP_S: Final = 24 * 3600.0
"""Staged frames that nobody published are swept after this time."""

NODES_PER_TOKEN_MAX: Final = 64
"""Nodes that one token may stand for, as far as the log is kept for them."""

READERS_PER_TOKEN_MAX: Final = 64
"""Pipelines, likewise."""

SUBSCRIPTIONS_MAX: Final = 512
SUBSCRIPTIONS_PER_TOKEN_MAX: Final = 64
"""Peers that follow at the same time; each has a thread."""

JOINS_MAX: Final = 16
JOINS_PER_TOKEN_MAX: Final = 4
"""Newcomers at the same time; each has a view of the store."""

COPIES_MAX: Final = 16
COPIES_PER_TOKEN_MAX: Final = 8
COPIES_PER_READER_MAX: Final = 4
"""Copies for pipelines; each may have a view of the store."""

HOLD_S: Final = 3600.0
"""How long a node keeps its log for a reader that it does not know as a node, after it was last heard of."""

SYNC_PACKED_BYTES_MAX: Final = 16 * MIB
SYNC_BODY_BYTES_MAX: Final = 64 * MIB
"""The body of one request of sync, compressed and as it is."""

SYNC_TOLD_BYTES_MAX: Final = 4 * MIB
"""What a node says about itself and its tables, without rows."""

SYNC_REFUSAL_BYTES_MAX: Final = 64 * KIB
"""Why a request was refused; of what is longer only the status counts."""

SYNC_EVENT_BYTES_MAX: Final = MIB
"""One event of a subscription."""

SYNC_TABLES_MAX: Final = 10_000
"""Tables that another node may have."""

SYNC_TABLE_CHARACTERS_MAX: Final = 200
"""How much is kept of the name that a table has there."""

SYNC_BODIES_BYTES_MAX: Final = 512 * MIB
"""The bodies of all requests at the same time."""

SYNC_BODY_S: Final = 60.0
"""How long a body may take to come."""

SYNC_HEAD_S: Final = 20.0
"""How long a request may take to say what it wants."""

SYNC_STALLED_S: Final = 60.0
"""How long an answer may wait for a node that does not take it."""

SYNC_ROWS_MAX: Final = 10_000
"""Rows or trackers in one body, and in one answer."""

SYNC_DEPTH_MAX: Final = 32
"""Arrays and objects inside each other."""

SYNC_VALUES_MAX: Final = 2_000_000
"""Values in one body; each takes more room in memory than in the body."""

SYNC_COLUMNS_MAX: Final = 4096
SYNC_SCHEMA_BYTES_MAX: Final = MIB
"""Columns of rows as Arrow has them, and what their names and notes take."""

SYNC_REQUESTS_MAX: Final = 4096
"""Connections and requests at the same time."""

SYNC_CHANNELS_MAX: Final = 2048
SYNC_CHANNELS_PER_NODE_MAX: Final = 8
"""Nodes that are told of changes at once, and how often one may ask for it."""

SYNC_AHEAD_S: Final = 86_400.0
"""How far ahead of a node's clock a row may have been changed; nobody could change one from the far future again."""

SYNC_NODES_MAX: Final = 100_000
"""Nodes that may come without having been registered."""

WEB_TOKEN_LETTERS_MIN: Final = 16
"""The token of a status page; a shorter one could be guessed."""

WEB_CONNECTIONS_MAX: Final = 200
"""Connections to a status page at the same time; the process has files to open, too."""

WEB_PAGES_MAX: Final = 50
"""Open pages that get news."""

WEB_HEAD_S: Final = 10.0
WEB_FORM_S: Final = 10.0
"""How long a request to a status page may take to say what it wants, and a form to come."""

WEB_STALLED_S: Final = 20.0
"""How long an answer of a status page may wait for a browser that does not take it."""
