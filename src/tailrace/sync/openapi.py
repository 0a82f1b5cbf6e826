"""The OpenAPI document of a server. It says nothing of the database behind it, so everybody may read it."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import orjson

from tailrace.limits import SYNC_ROWS_MAX
from tailrace.sync.arrowform import MEDIA_TYPE
from tailrace.sync.content import JSON, MORE
from tailrace.sync.entity import TABLE_ID_MAX

Part = dict[str, Any]
_LONG: Final[Part] = {
    "description": "a whole number of 64 bits, as text if the request has `door-longs: string`",
    "oneOf": [{"type": "integer"}, {"type": "string", "pattern": "^-?[0-9]{1,19}$"}],
}
_REFUSED: Final[Part] = {
    "type": "array",
    "items": {
        "allOf": [
            {"$ref": "#/components/schemas/Tracker"},
            {"type": "object", "required": ["reason"], "properties": {"reason": {"type": "string"}}},
        ]
    },
}
_SCHEMAS: Final[Part] = {
    "Long": _LONG,
    "KeyPart": {
        "oneOf": [
            {"type": ["integer", "string", "number", "boolean"]},
            {"type": "object", "minProperties": 1, "maxProperties": 1},
        ]
    },
    "Key": {
        "description": "the key's value, or a list with the values of its columns if there are several",
        "oneOf": [
            {"$ref": "#/components/schemas/KeyPart"},
            {"type": "array", "minItems": 2, "maxItems": 4, "items": {"$ref": "#/components/schemas/KeyPart"}},
        ],
    },
    "Tracker": {
        "description": "one version of one row",
        "type": "object",
        "required": ["primaryKey", "versionId"],
        "properties": {
            "primaryKey": {"$ref": "#/components/schemas/Key"},
            "versionId": {"description": "a time in milliseconds, or a hash", "type": ["integer", "string"]},
            "changedBy": {"$ref": "#/components/schemas/Long"},
        },
    },
    "Ack": {
        "allOf": [
            {"$ref": "#/components/schemas/Tracker"},
            {"type": "object", "properties": {"refused": {"description": "why not", "type": ["string", "null"]}}},
        ]
    },
    "Row": {
        "description": "the columns of the table; those of a tracker, which are ignored when they come; who made this "
        "version and when. Of a row that is deleted only the key counts.",
        "type": "object",
        "properties": {
            "trkrDestinationNode": {"$ref": "#/components/schemas/Long"},
            "trkrVersionId": {"type": ["integer", "string"]},
            "trkrProcessed": {"type": "boolean"},
            "doorTime": {"$ref": "#/components/schemas/Long"},
            "doorNode": {"$ref": "#/components/schemas/Long"},
            "doorDeleted": {"type": "boolean"},
        },
        "additionalProperties": True,
    },
    "Receipt": {
        "description": "rows that are not named are there now",
        "type": "object",
        "required": ["refused", "older"],
        "properties": {
            "refused": _REFUSED,
            "older": {"type": "array", "items": {"$ref": "#/components/schemas/Tracker"}},
            "left": {"description": "rows that the caller keeps, and sends again", **_REFUSED},
        },
    },
    "Node": {
        "type": "object",
        "required": ["nodeId", "time", "keyNode", "formats", "tables"],
        "properties": {
            "nodeId": {"$ref": "#/components/schemas/Long"},
            "time": {"$ref": "#/components/schemas/Long"},
            "count": {"type": "integer", "description": "how often this node has exchanged something with the caller"},
            "heard": {"type": "integer", "description": "the greatest `door-count` that it has heard of the caller"},
            "keyNode": {
                "description": "what the caller makes keys with, reserved for it",
                "type": "integer",
                "minimum": 1,
                "maximum": (1 << 20) - 1,
            },
            "formats": {"description": "of rows", "type": "array", "items": {"type": "string"}},
            "ackFormats": {
                "description": f"of acknowledgements; `{JSON}` alone where it is missing",
                "type": "array",
                "items": {"type": "string"},
            },
            "tables": {
                "type": "object",
                "additionalProperties": {
                    "type": "object",
                    "required": ["table", "batch"],
                    "properties": {"table": {"type": "string"}, "batch": {"type": "integer"}},
                },
            },
        },
    },
    "Pending": {
        "type": "object",
        "required": ["tables", "empty"],
        "properties": {
            "tables": {"type": "array", "items": {"type": "integer"}},
            "empty": {"type": "array", "items": {"type": "integer"}},
            "deletions": {
                "description": "those of `tables` of which there are only deletions; where it is missing,"
                " `pendingReplication` does not know `only`",
                "type": "array",
                "items": {"type": "integer"},
            },
        },
    },
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "what", "hint"],
                "properties": {name: {"type": "string"} for name in ("code", "what", "hint")},
            }
        },
    },
}
_ERRORS: Final = {
    "400": "what was sent makes no sense",
    "401": "no secret, or not that of the node",
    "403": "the node is not known here",
    "409": "the caller has the number of this node",
    "503": "too much to do, or the database does not answer: try again",
}
_TABLE_ERRORS: Final = {"404": "no such table"}
_BODY_ERRORS: Final = {"408": "the body took too long", "413": "the body is too large", "415": "of an unknown type"}
_NO_ROOM: Final[Part] = {
    "507": {
        "description": "some rows can neither be taken nor kept in quarantine: a receipt, with `left`, and an error",
        "content": {
            JSON: {
                "schema": {"allOf": [{"$ref": "#/components/schemas/Receipt"}, {"$ref": "#/components/schemas/Error"}]}
            }
        },
    }
}
_ACK_STREAM: Final[Part] = {
    "description": "the columns `primaryKey` (or `primaryKey1`, `primaryKey2` … of a key of several), `versionId`, "
    "`changedBy`, and `refused` if something is",
    "schema": {"type": "string", "contentMediaType": MEDIA_TYPE},
}
_TABLE: Final[Part] = {
    "name": "tableId",
    "in": "query",
    "required": True,
    "schema": {"type": "integer", "minimum": 1, "maximum": TABLE_ID_MAX},
}
_PAGE: Final[list[Part]] = [
    {"name": "after", "in": "query", "description": "a key, as JSON: go on behind it", "schema": {"type": "string"}},
    {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": SYNC_ROWS_MAX}},
]
_ONLY: Final[Part] = {
    "name": "only",
    "in": "query",
    "description": "`rows`: those that are not gone; `deletions`: the others. Without it both come.",
    "schema": {"type": "string", "enum": ["rows", "deletions"]},
}
_LONGS: Final[Part] = {
    "name": "door-longs",
    "in": "header",
    "description": "`string`: numbers of 64 bits are text, in answers and in bodies",
    "schema": {"type": "string", "enum": ["number", "string"]},
}


@cache
def document() -> bytes:
    """The document, as JSON."""
    return orjson.dumps(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Tailrace sync",
                "version": "1",
                "description": "Selective replication of SQL tables, with the endpoints of Door. Bodies and answers "
                "may be packed with gzip. Errors are `{error: {code, what, hint}}`.",
            },
            "paths": _paths(),
            "components": {
                "schemas": _SCHEMAS,
                "securitySchemes": {
                    "doorNode": {
                        "type": "apiKey",
                        "in": "header",
                        "name": "door-node",
                        "description": "`<nodeId>/<secret>` of the caller; a newcomer adds `door-enrol` if need be",
                    }
                },
            },
            "security": [{"doorNode": []}],
        }
    )


def _paths() -> Part:
    trackers = _operation("The versions that the caller should get", _list("Tracker"), [_TABLE, *_PAGE, _LONGS])
    rows = _operation(
        "The rows that the caller should get",
        {JSON: _list("Row")[JSON], MEDIA_TYPE: {"schema": {"type": "string", "contentMediaType": MEDIA_TYPE}}},
        [_TABLE, *_PAGE, _ONLY, _LONGS],
    )
    more = "true: rows were left only because they would have been too large together; ask for those after the last one"
    rows["responses"]["200"]["headers"] = {MORE: {"description": more, "schema": {"type": "string"}}}
    found = {
        "node": {"get": _operation("Who is there", _one("Node"), [_LONGS])},
        "pending": {"get": _operation("The tables of which there is something for the caller", _one("Pending"), [])},
        "pendingtrackers": {"get": trackers},
        "findPendingReplicationTrackers": {"get": {**trackers, "deprecated": True}},
        "markReplicateTrackersAsProcessed": {
            "put": _operation(
                "The caller has these versions", None, [_TABLE, _LONGS], body={**_list("Ack"), MEDIA_TYPE: _ACK_STREAM}
            )
        },
        "checkForEntitiesAlreadyReceived": {
            "post": _operation(
                "Which of these versions are here", _list("Tracker"), [_TABLE, _LONGS], body=_list("Tracker")
            )
        },
        "pendingReplication": {"get": rows},
        "findPendingReplication": {"get": {**rows, "deprecated": True}},
        "receive": {
            "put": _operation(
                "Take these rows",
                _one("Receipt"),
                [_TABLE, _LONGS],
                body={**_list("Row"), MEDIA_TYPE: {"schema": {"type": "string", "contentMediaType": MEDIA_TYPE}}},
                more=_NO_ROOM,
            )
        },
        "subscribe": {
            "get": _operation(
                "Server-sent events: INIT with the node's number, INVALIDATE with numbers of tables",
                {"text/event-stream": {"schema": {"type": "string"}}},
                [],
            )
        },
    }
    return {
        **{f"/replication/{name}": operations for name, operations in found.items()},
        "/healthz": {"get": _open("Whether the server runs")},
        "/openapi.json": {"get": _open("This document")},
    }


def _operation(
    summary: str, content: Part | None, parameters: list[Part], *, body: Part | None = None, more: Part | None = None
) -> Part:
    errors = {
        **_ERRORS,
        **(_TABLE_ERRORS if _TABLE in parameters else {}),
        **(_BODY_ERRORS if body is not None else {}),
    }
    error = {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}
    done: Part = (
        {"204": {"description": "done"}} if content is None else {"200": {"description": "", "content": content}}
    )
    found: Part = {
        "summary": summary,
        "parameters": parameters,
        "responses": {
            **done,
            **{status: {"description": what, "content": error} for status, what in sorted(errors.items())},
            **(more or {}),
        },
    }
    return found if body is None else {**found, "requestBody": {"required": True, "content": body}}


def _open(summary: str) -> Part:
    answer = {"200": {"description": "", "content": {JSON: {"schema": {"type": "object"}}}}}
    return {"summary": summary, "security": [], "responses": answer}


def _one(name: str) -> Part:
    return {JSON: {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _list(name: str) -> Part:
    schema = {"type": "array", "maxItems": SYNC_ROWS_MAX, "items": {"$ref": f"#/components/schemas/{name}"}}
    return {JSON: {"schema": schema}}
