"""Pipelines declared in Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.log.agreement import Hold, Policy
from tailrace.pipeline import Pipeline
from tailrace.pipeline.load import load
from tailrace.transform.omit import Omit
from tests.pipeline.conftest import Write
from tests.pipeline.shelf import shelf

EMAIL = Omit(fields=("email",))
PHONE = Omit(fields=("phone",))


def test_file_and_python_say_the_same(write: Write) -> None:
    from_file = load(
        write(
            r"""
            pipeline: orders
            log: ./orders.log
            read:
              shelf: {path: shop.json, poll: 100ms}
              namespace: main\..*
            write:
              - name: lake
                shelf: {path: lake.json}
                namespace: main\.orders
                through: [omit: [email]]
                on_error: skip
                hold: {cap_bytes: 10GB}
              - shelf: {path: copy.json}
                every: 5s
            settings: {poll: 1s, master: "local[2]"}
            """
        )
    )
    in_python = (
        Pipeline("orders", log="./orders.log", settings={"poll": "1s", "master": "local[2]"})
        .read(shelf("shop.json", poll="100ms"), namespace=r"main\..*")
        .through(EMAIL)
        .write(
            shelf("lake.json"),
            name="lake",
            namespace=r"main\.orders",
            on_error="skip",
            hold=Hold(Policy.CAP, cap_bytes=10**10),
        )
        .write(shelf("copy.json"), every="5s")
    )
    assert in_python.spec() == from_file


def test_functions_belong_to_the_write_that_follows() -> None:
    spec = (
        Pipeline("p")
        .read(shelf("a"))
        .through(EMAIL)
        .through(PHONE)
        .write(shelf("b"))
        .write(shelf("c"))
        .through(PHONE)
        .write(shelf("d"))
        .spec()
    )
    assert [writer.through for writer in spec.writes] == [(EMAIL, PHONE), (), (PHONE,)]
    assert [writer.name for writer in spec.writes] == ["shelf", "shelf-2", "shelf-3"]


def test_one_beginning_can_have_several_ends() -> None:
    beginning = Pipeline("p").read(shelf("a")).through(EMAIL)
    one = beginning.write(shelf("b")).spec()
    two = beginning.through(PHONE).write(shelf("c")).spec()
    assert one.writes[0].through == (EMAIL,)
    assert two.writes[0].through == (EMAIL, PHONE)
    assert len(two.writes) == 1


def test_paths_start_where_the_process_is(tmp_path: Path) -> None:
    spec = Pipeline("p", log=Path("logs")).read(shelf("a")).write(shelf("b")).spec()
    assert spec.log == str(tmp_path / "logs")
    assert spec.writes[0].options.where() == str(tmp_path / "b")


def test_all_mistakes_are_told_at_once() -> None:
    declared = Pipeline("p", settings={"pol": "1s"}).read(shelf("a", poll="soon")).write(shelf("b"), evry="5s")
    with pytest.raises(TailraceError) as refused:
        declared.through(EMAIL).check()
    assert refused.value.code == "config.invalid"
    assert refused.value.what.splitlines() == [
        "pipeline p has 4 problems:",
        "unknown key 'pol' in settings; did you mean poll?",
        "read.shelf.poll: 'soon' is not a duration such as 30s, 5m, 2h or 7d",
        "unknown key 'evry' in write[1]; did you mean every?",
        "through: no write follows these functions",
    ]


def test_a_pipeline_needs_both_ends() -> None:
    with pytest.raises(TailraceError, match="read: this key is missing\nwrite: this key is missing"):
        Pipeline("p").check()


def test_there_is_one_source() -> None:
    with pytest.raises(TailraceError, match="two sources"):
        Pipeline("p").read(shelf("a")).read(shelf("b"))


@pytest.mark.parametrize(("given", "options"), [(("a", "b"), {}), (("a",), {"path": "b"})])
def test_an_endpoint_takes_its_first_option_once(given: tuple[str, ...], options: dict[str, str]) -> None:
    with pytest.raises(TailraceError) as refused:
        shelf(*given, **options)
    assert refused.value.code == "config.invalid"


def test_secrets_do_not_show() -> None:
    end = shelf("a", password="hunter2")
    declared = Pipeline("p").read(end).write(shelf("b", password="hunter2"))
    assert "hunter2" not in repr(end) + repr(declared) + repr(declared.spec())


def test_importing_it_is_cheap() -> None:
    program = (
        "import sys; from tailrace.pipeline import Pipeline; "
        "print(sorted({'pyspark', 'pyarrow', 'pydantic', 'yaml'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
