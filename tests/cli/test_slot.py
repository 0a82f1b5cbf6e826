"""`tailrace slot`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.log.commitlog import CommitLog
from tailrace.message import now
from tailrace.observe.slots import slot_gauge
from tailrace.pipeline.load import load
from tailrace.source.bookmark import bookmark
from tailrace.source.phase import Progress
from tests.cli.conftest import Tailrace
from tests.relay.nodes import wait_for
from tests.servers.postgres import PASSWORD, PostgresServer


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    started = PostgresServer()
    started.start()
    yield started
    started.remove()


@pytest.fixture
def shop(tmp_path: Path, server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("shop.yml").write_text(
        f"pipeline: shop\nread: {{postgres: {{url: '{server.url()}'}}}}\nwrite: {{sqlite: {{path: copy.db}}}}\n"
    )
    return "shop.yml"


def make_slot(file: str) -> None:
    with closing(load(file).read.options.open()) as reader:
        reader.install(reader.tables())


def publications(server: PostgresServer) -> list[str]:
    with server.connect() as connection:
        return [name for (name,) in connection.execute("SELECT pubname FROM pg_publication ORDER BY 1")]


def test_a_slot_is_listed_and_removed(shop: str, server: PostgresServer, tailrace: Tailrace) -> None:
    make_slot(shop)
    with server.connect() as connection:
        connection.execute("SELECT pg_create_logical_replication_slot('other', 'pgoutput')")
    listed = tailrace("slot", "list", shop, "--json")
    assert [(slot["name"], slot["is_own"], slot["held_bytes"] >= 0) for slot in listed.json] == [
        ("other", False, True),
        ("tailrace_shop", True, True),
    ]
    shown = tailrace("slot", "list", shop).out
    assert "tailrace_shop (this pipeline's)" in shown
    assert "holds back" in shown
    assert PASSWORD not in shown + listed.out

    assert tailrace("slot", "drop", shop, "--yes").out == "slot tailrace_shop is removed\n"

    assert publications(server) == []
    assert tailrace("slot", "drop", shop, "--yes").out == "there is no slot tailrace_shop\n"
    assert tailrace("slot", "drop", shop, "--slot", "other", "--yes").out == "slot other is removed\n"
    assert tailrace("slot", "list", shop, "--json").json == []


def test_a_source_without_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tailrace: Tailrace) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shop.yml").write_text("pipeline: shop\nread: {sqlite: {path: shop.db}}\nwrite: {sqlite: {path: copy.db}}\n")
    outcome = tailrace("slot", "list", "shop.yml")
    assert outcome.status == 2
    assert "which has no replication slots" in outcome.err


def test_doctor_says_that_a_slot_is_gone(shop: str, server: PostgresServer, tailrace: Tailrace) -> None:
    """Without it a run would have to begin anew, which is not for a run to decide."""
    what = "source postgres: changes go on where the log ends"
    assert what not in tailrace("doctor", shop).out
    make_slot(shop)
    spec = load(shop)
    Path(spec.log).parent.mkdir(parents=True)
    with CommitLog.open(Path(spec.log)) as log, closing(spec.read.options.open()) as reader:
        log.append(list(bookmark(Progress(), Progress(reader.position()), now())))
    found = {check["what"]: check for check in tailrace("doctor", shop, "--json").json["checks"]}
    assert found[what]["ok"]

    tailrace("slot", "drop", shop, "--yes")

    sick = tailrace("doctor", shop, "--json")
    assert sick.status == 1
    (check,) = [check for check in sick.json["checks"] if check["what"] == what]
    assert "slot tailrace_shop is gone" in check["found"]
    assert "slot drop" in check["cure"]


def test_the_status_model_knows_what_a_slot_keeps(shop: str, server: PostgresServer) -> None:
    make_slot(shop)
    gauge = slot_gauge(load(shop))
    assert gauge is not None
    wait_for(lambda: gauge.read() is not None)
    assert (gauge.read() or -1) >= 0


def test_where_there_is_no_slot_there_is_no_gauge(tmp_path: Path, server: PostgresServer) -> None:
    file = tmp_path / "shop.yml"
    reads = (f"postgres: {{url: '{server.url()}', changes: triggers}}", "sqlite: {path: shop.db}")
    for read in reads:
        file.write_text(f"pipeline: shop\nread: {{{read}}}\nwrite: {{sqlite: {{path: copy.db}}}}\n")
        assert slot_gauge(load(str(file))) is None
