"""What the document says is what the server does: requests are made from it, good ones and bad ones."""

from __future__ import annotations

from typing import Any

import httpx
import orjson
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.result import Ok
from starlette.routing import Route

from tailrace.sync.openapi import document
from tailrace.sync.server import app
from tests.sync.served import ALICE, TODO, Served, door_node, serve, served

__all__ = ["serve", "served"]  # fixtures

EXAMPLES = 30
ENDLESS = "/replication/subscribe"
load_all_checks()
HELD = CHECKS.get_by_names(
    [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
        "ignored_auth",
    ]
)


def test_the_document_has_every_route(served: Served) -> None:
    told = orjson.loads(document())["paths"]
    routes = [route for route in app(served.store).routes if isinstance(route, Route)]
    assert {(path, method.upper()) for path, methods in told.items() for method in methods} == {
        (route.path, method) for route in routes for method in route.methods or ()
    }


def test_every_operation(served: Served) -> None:
    """A server error, an answer that is not as documented, or one for who did not say who it is, is a failure."""
    served.run("INSERT INTO todo(id, what, changed) VALUES (1, 'sweep', 1000)")
    schema = schemathesis.openapi.from_url(f"{served.server.url}/openapi.json")
    counted: dict[str, int] = {}
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        if operation.path != ENDLESS:
            counted[operation.path] = _try(served, operation)
    assert counted.keys() == orjson.loads(document())["paths"].keys() - {ENDLESS, "/openapi.json"}
    assert min(counted.values()) >= 1
    assert httpx.get(f"{served.server.url}/healthz").status_code == 200


def _try(served: Served, operation: Any) -> int:
    count = 0

    @given(case=operation.as_strategy())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    def call(case: Any) -> None:
        nonlocal count
        count += 1
        if "tableId" in (case.query or {}) and count % 2:
            case.query["tableId"] = TODO
        case.call_and_validate(headers=door_node(ALICE), checks=HELD)

    call()
    return count
