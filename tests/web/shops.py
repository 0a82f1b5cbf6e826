"""A pipeline's log to look at, with two writers of which one is stuck, and a page about it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from tailrace.deliver.retrying import Retrying
from tailrace.deliver.trouble import Trouble, TroubleFile
from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.message import Message, NodeId, Offset, Op, now
from tailrace.observe.pipelines import overview_of_pipeline
from tailrace.pipeline.load import load
from tailrace.pipeline.spec import PipelineSpec
from tailrace.serving.server import HttpServer
from tailrace.web.status_page import status_page

TOKEN: Final = "a-token-that-nobody-guesses"
HOSTILE: Final = "main.<script>\"&'x"
SHOP: Final = """
pipeline: shop
log: log
read: {sqlite: {path: shop.db}}
write:
  - name: lake
    lake: {path: lake}
    through: [{omit: [email]}]
  - {name: office, sqlite: {path: office.db}}
"""


def make_shop(directory: Path) -> PipelineSpec:
    """Twelve messages: ten orders, one of them an update, and two of a namespace that looks like markup."""
    (directory / "shop.yml").write_text(SHOP)
    spec = load(str(directory / "shop.yml"))
    messages = [
        Message(Op.INSERT, now(), "main.orders", {"id": number, "what": f"thing {number}"}, origin=NodeId(number % 2))
        for number in range(9)
    ]
    update = Message(Op.UPDATE, now(), "main.orders", {"id": 1, "what": "new"}, before={"id": 1, "what": "old"})
    hostile = [
        Message(
            Op.INSERT, now(), HOSTILE, {"id": number, "v": "<b onclick=x>"}, destinations=("<i>",) if number else ()
        )
        for number in range(2)
    ]
    with CommitLog.open(spec.log) as log:
        log.append_messages([*messages, update])
        log.append_messages(hostile)
    consumers = Consumers(spec.log)
    consumers.register("lake", start=Offset(12))
    consumers.register("office", start=Offset(4))
    TroubleFile(spec.log, "office").write(Trouble(4, 11, "CHECK constraint failed", time.time() - 5, is_single=True))
    return spec


@contextmanager
def served(spec: PipelineSpec) -> Iterator[HttpServer]:
    with status_page(
        lambda: overview_of_pipeline(spec),
        listen="127.0.0.1:0",
        token=TOKEN,
        log=spec.log,
        retry=lambda writer, reason, via: Retrying(spec.log, writer).ask(reason, via),
    ) as server:
        yield server


def program(server: HttpServer) -> httpx.Client:
    """A client with the token."""
    return httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {TOKEN}"}, trust_env=False)


def browser(server: HttpServer) -> httpx.Client:
    """A client that has entered with the token, as a browser does."""
    client = httpx.Client(base_url=server.url, headers={"accept": "text/html"}, trust_env=False)
    entered = client.post("/enter", data={"token": TOKEN}, headers={"origin": server.url})
    assert entered.status_code == 303
    return client
