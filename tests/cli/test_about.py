"""`tailrace about`."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Tailrace
from tests.pipeline.shelf import offer


@pytest.fixture(autouse=True)
def shelves(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch)


def test_it_lists_adaptors_and_functions(tailrace: Tailrace) -> None:
    lines = [line.split() for line in tailrace("about").out.splitlines()]
    assert ["shelf", "read", "and", "write", "a", "JSON", "file", "on", "a", "shelf"] in lines
    assert ["sink", "write", "swallows", "everything"] in lines
    names = [line[0] for line in lines if line]
    functions = names[names.index("Functions") + 1 : -1]
    assert functions == sorted(functions)
    assert {"omit", "rename", "skip"} <= set(functions)


def test_the_list_as_json(tailrace: Tailrace) -> None:
    found = tailrace("about", "--json").json
    assert [each["name"] for each in found["adaptors"]] == ["shelf", "sink"]
    assert list(found["adaptors"][1]["options"]) == ["write"]


def test_one_adaptor_with_every_option(tailrace: Tailrace) -> None:
    page = tailrace("about", "shelf").out
    assert 'poll              duration, default "100ms"\n' in page
    assert 'piece_bytes       size, default "64MiB"\n' in page
    assert "path              path, required\n" in page
    assert "password          secret, default null\n" in page
    assert 'form              wide or long, default "wide"\n' in page
    assert "How often to look." in page
    assert "shelf: {path: shelf.json}" in page


def test_one_function_as_json(tailrace: Tailrace) -> None:
    found = tailrace("about", "omit", "--json").json
    assert found["kind"] == "function"
    fields = next(option for option in found["options"]["through"] if option["name"] == "fields")
    assert fields["is_required"]


def test_an_unknown_name_is_your_input(tailrace: Tailrace) -> None:
    outcome = tailrace("about", "shlef")
    assert outcome.status == 2
    assert "did you mean shelf?" in outcome.err
    assert outcome.out == ""


def test_the_schema_is_one_object(tailrace: Tailrace) -> None:
    assert tailrace("about", "--schema").json == tailrace("about", "--schema", "--json").json
    assert tailrace("about", "--schema").json["required"] == ["pipeline", "read", "write"]
