"""`tailrace init`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Tailrace
from tests.pipeline.shelf import offer


@pytest.fixture(autouse=True)
def shelves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offer(monkeypatch)
    monkeypatch.chdir(tmp_path)


def test_the_file_passes_the_check(tailrace: Tailrace) -> None:
    made = tailrace("init", "shelf", "sink", "--file", "orders.yml")
    assert made.status == 0
    assert "tailrace check orders.yml" in made.err
    checked = tailrace("check", "orders.yml", "--json").json
    assert checked["pipeline"] == "orders"
    assert checked["read"]["adaptor"] == "shelf"
    assert [writer["adaptor"] for writer in checked["write"]] == ["sink"]


def test_every_option_is_there_with_its_meaning(tailrace: Tailrace) -> None:
    tailrace("init", "shelf", "sink")
    text = Path("pipeline.yml").read_text()
    assert "    # How often to look. (duration)\n    # poll: 100ms\n" in text
    assert "    # piece_bytes: 64MiB\n" in text
    assert "    path: shelf.json\n" in text
    assert "      path: copy.json\n" in text
    assert "    # on_error: stop\n" in text
    assert "  # shutdown: 30s\n" in text


def test_a_file_is_not_overwritten_unless_forced(tailrace: Tailrace) -> None:
    Path("pipeline.yml").write_text("mine")
    refused = tailrace("init", "shelf", "sink")
    assert refused.status == 2
    assert "--force" in refused.err
    assert Path("pipeline.yml").read_text() == "mine"
    assert tailrace("init", "shelf", "sink", "--force").status == 0
    assert tailrace("check", "pipeline.yml").status == 0


def test_a_schema_for_editors(tailrace: Tailrace) -> None:
    assert tailrace("init", "shelf", "sink", "--file", "a.yml", "--schema").status == 0
    assert Path("a.yml").read_text().startswith("# yaml-language-server: $schema=a.schema.json\n")
    assert "read" in json.loads(Path("a.schema.json").read_text())["properties"]


def test_a_file_whose_name_is_no_name(tailrace: Tailrace) -> None:
    tailrace("init", "shelf", "sink", "--file", "-ö-.yml")
    assert tailrace("check", "--json", "--", "-ö-.yml").json["pipeline"] == "pipeline"


def test_a_file_that_cannot_be_written(tailrace: Tailrace) -> None:
    outcome = tailrace("init", "shelf", "sink", "--file", "nowhere/a.yml")
    assert outcome.status == 2
    assert "nowhere/a.yml cannot be written" in outcome.err


@pytest.mark.parametrize(
    ("ends", "why"),
    [(("sink", "shelf"), "cannot be read from"), (("shlef", "sink"), "did you mean shelf?")],
)
def test_ends_that_cannot_be(tailrace: Tailrace, ends: tuple[str, str], why: str) -> None:
    outcome = tailrace("init", *ends)
    assert outcome.status == 2
    assert why in outcome.err
    assert not Path("pipeline.yml").exists()
