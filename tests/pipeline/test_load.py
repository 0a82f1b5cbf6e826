"""Pipeline files: what they mean, and how their mistakes are told."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.log.agreement import Hold, Policy
from tailrace.pipeline.load import examine, load
from tailrace.pipeline.places import FILE_BYTES_MAX
from tailrace.pipeline.spec import OnError, SchemaPolicy
from tests.pipeline.conftest import Write
from tests.pipeline.shelf import ShelfReaderOptions, ShelfWriterOptions

GOOD = """\
pipeline: shop
read:
  shelf: {path: in.json}
write:
  shelf: {path: out.json}
"""


def told(file: str, environment: Mapping[str, str] | None = None) -> list[str]:
    """Every problem as `line: text`."""
    examined = examine(file, {} if environment is None else environment)
    assert examined.spec is None
    return [f"{problem.line}: {problem.text}" for problem in examined.problems]


def test_a_short_file_gets_all_defaults(write: Write, tmp_path: Path) -> None:
    spec = load(write(GOOD))
    assert spec.name == "shop"
    assert spec.log == str(tmp_path / ".tailrace" / "shop")
    assert (spec.segment_bytes, spec.sync_every_s, spec.shutdown_s, spec.poll_s) == (1 << 30, 0.0, 30.0, 0.05)
    assert (spec.keep_bytes, spec.keep_s, spec.master, spec.spark) == (None, None, None, {})
    assert isinstance(spec.read.options, ShelfReaderOptions)
    (writer,) = spec.writes
    assert isinstance(writer.options, ShelfWriterOptions)
    assert (writer.name, writer.adaptor, writer.through) == ("shelf", "shelf", ())
    assert (writer.on_error, writer.on_schema_change) == (OnError.STOP, SchemaPolicy.EVOLVE)
    assert (writer.batch_bytes, writer.every_s, writer.hold) == (256 << 20, None, Hold())
    assert writer.namespace.search("anything.at all")


def test_everything_that_can_be_said(write: Write, tmp_path: Path) -> None:
    spec = load(
        write(
            r"""
            pipeline: shop
            log: logs/shop
            read:
              shelf: {path: in.json, poll: 50ms, piece_bytes: 1MB, password: hush}
              namespace: /main\..*/
              parallel: 3
            write:
              - sink: {path: /elsewhere/out.json}
                name: first
                namespace: main\.orders$
                through:
                  - omit: [email]
                  - omit: {fields: [phone]}
                on_error: dead_letter
                on_schema_change: freeze
                batch_bytes: 1MiB
                every: 5s
                hold: {cap_bytes: 10GB, cap_age: 2d}
              - sink: {path: out.json}
                hold: none
              - sink: {path: other.json}
                through:
            settings:
              segment_bytes: 64MB
              sync_every: 10ms
              keep_bytes: 1GB
              keep_age: 7d
              shutdown: 1m
              poll: 1s
              master: local[2]
              spark: {spark.ui.enabled: false, spark.sql.shuffle.partitions: 8}
            """
        )
    )
    assert spec.log == str(tmp_path / "logs" / "shop")
    assert (spec.segment_bytes, spec.sync_every_s, spec.keep_bytes, spec.keep_s) == (64_000_000, 0.01, 10**9, 604_800.0)
    assert (spec.shutdown_s, spec.poll_s, spec.master) == (60.0, 1.0, "local[2]")
    assert spec.spark == {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "8"}
    assert spec.read.namespace == re.compile(r"main\..*")
    assert spec.read.parallel == 3
    assert isinstance(spec.read.options, ShelfReaderOptions)
    assert spec.read.options.path == str(tmp_path / "in.json")
    assert (spec.read.options.poll, spec.read.options.piece_bytes) == (0.05, 1_000_000)
    first, second, third = spec.writes
    assert [function.kind for function in first.through] == ["omit", "omit"]
    assert (first.name, first.on_error, first.on_schema_change) == ("first", OnError.DEAD_LETTER, SchemaPolicy.FREEZE)
    assert (first.batch_bytes, first.every_s) == (1 << 20, 5.0)
    assert first.hold == Hold(Policy.CAP, 10**10, 172_800.0)
    assert first.options.where() == "/elsewhere/out.json"
    assert (second.name, second.hold) == ("sink", Hold(Policy.NONE))
    assert (third.name, third.through) == ("sink-2", ())


def test_paths_start_at_the_file(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(GOOD)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    spec = load("../shop.yml")
    assert spec.read.options.where() == str(tmp_path / "in.json")
    assert spec.log == str(tmp_path / ".tailrace" / "shop")


@pytest.mark.parametrize(
    ("written", "meant"), [("-", "-"), ("s3://bucket/x", "s3://bucket/x"), ("~/x", "/home/me/x"), ("/a/../b", "/b")]
)
def test_paths_that_start_elsewhere(write: Write, monkeypatch: pytest.MonkeyPatch, written: str, meant: str) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert load(write(GOOD.replace("in.json", f'"{written}"'))).read.options.where() == meant


def test_a_hostile_key_cannot_reach_the_terminal(write: Write) -> None:
    text = GOOD + 'settings: {spark: {"a\\e[31m": [1]}}\n"\\e[2J": 1\n'
    assert not [problem for problem in told(write(text)) if not problem.isprintable()]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("pipeline: shop", "pipelin: shop", "1: unknown key 'pipelin'; did you mean pipeline?"),
        ("  shelf: {path: in.json}", "  shelv: {path: in.json}", "3: unknown key 'shelv' in read; did you mean shelf?"),
        ("{path: in.json}", "{path: in.json, pol: 1s}", "3: unknown key 'pol' in read.shelf; did you mean poll?"),
        ("read:\n", "read:\n  namespase: x\n", "3: unknown key 'namespase' in read; did you mean namespace?"),
        ("write:\n", "write:\n  on_eror: skip\n", "5: unknown key 'on_eror' in write; did you mean on_error?"),
        ("{path: in.json}", "{path: in.json, poll: soon}", "3: read.shelf.poll: 'soon' is not a duration"),
        ("{path: in.json}", "{path: in.json, piece_bytes: 1XB}", "3: read.shelf.piece_bytes: '1XB' is not a size"),
        ("{path: in.json}", "{path: x, poll: -1}", "3: read.shelf.poll: should be greater than or equal to 0"),
        ("{path: in.json}", "{path: x, poll: -1s}", "3: read.shelf.poll: '-1s' is not a duration"),
        ("{path: in.json}", "{path: [1]}", "3: read.shelf.path: should be text"),
        ("{path: in.json}", "{poll: 1s}", "3: read.shelf.path: this key is missing"),
        ("{path: in.json}", "in.json", "3: read.shelf: should be a mapping of options"),
        ("{path: out.json}", "{path: x, form: round}", "5: write.shelf.form: should be 'wide' or 'long'"),
        ("read:\n", "read:\n  namespace: '*x'\n", "3: read.namespace: '*x' is not a regular expression"),
        ("read:\n", "read:\n  parallel: 0\n", "3: read.parallel: should be greater than or equal to 1"),
        ("read:\n", "read:\n  parallel: many\n", "3: read.parallel: should be a whole number"),
        ("write:\n", "write:\n  on_error: explode\n", "5: write.on_error: should be 'stop', 'dead_letter' or 'skip'"),
        ("write:\n", "write:\n  hold: {policy: none, cap_bytes: 1MB}\n", "5: write.hold: give a cap of bytes"),
        ("write:\n", "write:\n  name: _mine\n", "5: write.name: names that start with _ are reserved"),
        ("write:\n", "write:\n  name: ../up\n", "5: write.name: writer '../up' is not a usable name"),
        ("write:\n", "write:\n  through: [pick: []]\n", "5: write.through[1].pick.fields: should not be empty"),
        ("write:\n", "write:\n  through: omit\n", "5: write.through: should be a list"),
        ("write:\n", "write:\n  through: [omti: [a]]\n", "5: there is no function 'omti'; did you mean omit?"),
        ("write:\n", "write:\n  through: [{omit: [a], skip: b}]\n", "5: write.through[1]: should be one function"),
        (
            "write:\n",
            "write:\n  through:\n    - omit: {feilds: [a]}\n",
            "6: unknown key 'feilds' in write.through[1].omit",
        ),
        ("write:\n", "write:\n  sink: {path: x}\n", "4: write: only one adaptor is possible, not sink and shelf"),
        ("  shelf: {path: in.json}", "  sink: {path: in.json}", "3: the adaptor sink cannot be read from"),
        ("  shelf: {path: in.json}", "  parallel: 1", "2: read: no adaptor is named; there are: shelf, sink"),
        ("read:\n  shelf: {path: in.json}\n", "", "1: read: this key is missing"),
        ("  shelf: {path: out.json}", "", "4: write: this key is missing"),
        ("write:\n  shelf: {path: out.json}", "write: []", "4: write: should be a writer or a list of writers"),
        ("pipeline: shop", "pipeline: a/b", "1: pipeline: pipeline 'a/b' is not a usable name"),
        ("pipeline: shop", "pipeline: 7", "1: pipeline: should be text"),
        ("pipeline: shop", "pipeline: shop\nlog: s3://bucket/log", "2: log: should be the path of a directory"),
        ("pipeline: shop", "pipeline: shop\npipeline: store", "2: the key 'pipeline' is here twice, first in line 1"),
        ("pipeline: shop", "pipeline: shop\nsettings: {spark: {a: [1]}}", "2: settings.spark.a: should be text"),
        ("pipeline: shop", "pipeline: !!python/object:os.system shop", "1: a tag is not understood here"),
        ("pipeline: shop", "? [a, b]\n: c\npipeline: shop", "1: a key should be a word"),
        ("read:\n", "read:\n\t", "3: a tab is no indentation in YAML; use spaces"),
        ("{path: in.json}", "{path: 'in.json}", "3: what begins here never ends"),
        ("pipeline: shop", "pipeline: shop\n---\na: b", "2: one file holds one pipeline"),
    ],
)
def test_a_mistake_is_told_with_its_line(write: Write, old: str, new: str, problem: str) -> None:
    assert old in GOOD
    found = told(write(GOOD.replace(old, new, 1)))
    assert [line for line in found if line.startswith(problem)], found


def test_the_place_has_a_column(write: Write) -> None:
    (problem,) = examine(write(GOOD.replace("in.json}", "in.json, poll: soon}"))).problems
    assert (problem.line, problem.column) == (3, 32)
    assert str(problem).startswith("shop.yml:3:32: read.shelf.poll: ")


def test_all_mistakes_are_told_at_once(write: Write) -> None:
    file = write(
        """\
        pipeline: shop
        read:
          shelf: {poll: soon, pat: x}
          namespace: "["
        wirte: 1
        write:
          - sink: {path: "${NOWHERE}"}
            every: often
          - sink: {path: b}
            name: twice
          - sink: {path: c}
            name: Twice
        """
    )
    with pytest.raises(TailraceError) as refused:
        load(file, {})
    assert refused.value.code == "config.invalid"
    lines = refused.value.what.splitlines()
    assert lines[0] == "shop.yml has 8 problems:"
    places = [line.split(": ")[0] for line in lines[1:]]
    assert places == [f"shop.yml:{place}" for place in ("3:3", "3:17", "3:23", "4:14", "5:1", "7:18", "8:12", "12:11")]


def test_two_writers_cannot_share_a_name_even_by_case(write: Write) -> None:
    file = write(GOOD.replace("write:\n  ", "write:\n- {name: A, sink: {path: x}}\n- {name: a, sink: {path: y}}\n- "))
    assert told(file) == ["6: write[2].name: another writer has this name; each needs its own"]


@pytest.mark.parametrize("path", ["in.json", "./x/../in.json", "link.json"])
def test_a_pipeline_does_not_feed_itself(write: Write, path: str) -> None:
    Path("link.json").symlink_to("in.json")
    assert told(write(GOOD.replace("out.json", path))) == [
        "5: write.shelf: the pipeline reads from here, so it would feed itself; write to another place"
    ]


def test_two_writers_cannot_share_a_place(write: Write) -> None:
    Path("link").symlink_to(".")
    second = "  - {name: a, shelf: {path: out.json}}\n  - {name: b, namespace: x, shelf: {path: link/out.json}}\n"
    assert told(write(GOOD.replace("  shelf: {path: out.json}\n", second))) == [
        "6: write[2].shelf: writer 'a' writes here, too, and neither would know what the other does; "
        "give each a place of its own, or make them one writer"
    ]
    other = write(GOOD.replace("  shelf: {path: out.json}\n", second.replace("link/out", "other")))
    assert [writer.name for writer in load(other).writes] == ["a", "b"]


def test_a_default_name_avoids_names_that_were_given(write: Write) -> None:
    file = write(GOOD.replace("write:\n  ", "write:\n- sink: {path: x}\n- {name: sink, sink: {path: y}}\n- "))
    assert [writer.name for writer in load(file).writes] == ["sink-2", "sink", "shelf"]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("${DIR}/in.json", "/data/in.json"),
        ("${NONE:-/other}/in.json", "/other/in.json"),
        ("${EMPTY:-/other}/in.json", "/other/in.json"),
        ("${EMPTY}/in.json", "/in.json"),
        ("/a$$b/$c/$", "/a$b/$c/$"),
        ("/$${DIR}", "/${DIR}"),
        ("/${TRICK}", "/${DIR}: {a: [b"),
    ],
)
def test_variables(write: Write, written: str, read: str) -> None:
    environment = {"DIR": "/data", "EMPTY": "", "TRICK": "${DIR}: {a: [b"}
    spec = load(write(GOOD.replace("in.json", f'"{written}"')), environment)
    assert spec.read.options.where() == read


def test_a_variable_can_be_a_number_with_a_unit(write: Write) -> None:
    spec = load(write(GOOD.replace("read:\n", "read:\n  parallel: ${CORES}\n")), {"CORES": "4"})
    assert spec.read.parallel == 4


def test_a_variable_that_is_not_set_is_named_with_its_line(write: Write) -> None:
    assert told(write(GOOD.replace("in.json", '"${DB}"'))) == ["3: the environment variable DB is not set"]


def test_a_malformed_reference_is_refused(write: Write) -> None:
    assert told(write(GOOD.replace("in.json", '"${1X}"')))[0].startswith("3: ${1X} is no reference")


def test_an_unquoted_reference_inside_braces_gets_advice(write: Write) -> None:
    assert told(write(GOOD.replace("in.json", "${DB}")))[0].endswith("values with ${...} need quotes")


@pytest.mark.parametrize(
    "line",
    [
        "  namespace: ${SECRET}",
        "  parallel: ${SECRET}",
        "  shelf: {path: x, poll: '${SECRET}'}",
        "  naemspace: ${SECRET}",
    ],
)
def test_what_a_variable_holds_is_never_told(write: Write, line: str) -> None:
    text = GOOD.replace("  shelf: {path: in.json}", line)
    with pytest.raises(TailraceError) as refused:
        load(write(text), {"SECRET": "*hunter2"})
    assert "hunter2" not in str(refused.value)
    assert refused.value.what.count("shop.yml:3:") == 1


def test_secrets_stay_secret(write: Write) -> None:
    spec = load(write(GOOD.replace("in.json", 'in.json, password: "${SECRET}"')), {"SECRET": "hunter2"})
    assert isinstance(spec.read.options, ShelfReaderOptions)
    assert spec.read.options.password is not None
    assert spec.read.options.password.get_secret_value() == "hunter2"
    assert "hunter2" not in repr(spec)


@pytest.mark.parametrize(("text", "problem"), [("", "the file is empty"), ("# only\n", "the file is empty")])
def test_an_empty_file(write: Write, text: str, problem: str) -> None:
    (only,) = told(write(text))
    assert only.startswith(f"1: {problem}")


@pytest.mark.parametrize("text", ["- a\n- b\n", "just words\n", "7\n"])
def test_no_mapping(write: Write, text: str) -> None:
    assert told(write(text)) == ["1: should be a mapping with the keys pipeline, read and write"]


def test_words_that_other_yaml_readers_take_for_something_else(write: Write) -> None:
    text = GOOD.replace("in.json", "in.json, fields: [no, on, 12:30, 2024-01-01, yes]")
    options = load(write(text)).read.options
    assert isinstance(options, ShelfReaderOptions)
    assert options.fields == ("no", "on", "12:30", "2024-01-01", "yes")


def test_an_alias_is_what_it_stands_for(write: Write) -> None:
    file = write(GOOD.replace("{path: in.json}", "&end {path: '-'}").replace("{path: out.json}", "*end"))
    spec = load(file)
    assert spec.read.options.where() == spec.writes[0].options.where() == "-"


def test_aliases_cannot_explode(write: Write) -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    started = time.monotonic()
    problems = told(write("\n".join(levels)))
    assert time.monotonic() - started < 5
    assert any("too much for a pipeline" in problem for problem in problems)


@pytest.mark.parametrize("text", ["[" * 5000, "a: &a [*a]\n", "- " * 3000 + "x"], ids=["flow", "itself", "block"])
def test_depth_is_limited(write: Write, text: str) -> None:
    assert any("too much for a pipeline" in problem for problem in told(write(text)))


def test_a_huge_file_is_not_read(write: Write) -> None:
    assert told(write(GOOD + "#" * FILE_BYTES_MAX)) == [
        f"1: the file has more than {FILE_BYTES_MAX} bytes; this cannot be right"
    ]


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    Path("shop.yml").write_bytes(b"pipeline: \xff\n")
    assert told("shop.yml") == ["1: the file is not UTF-8: byte 10"]


def test_characters_that_no_text_has(write: Write) -> None:
    assert told(write("pipeline: a\nread: \x00\n"))[0].startswith("2: character")


def test_a_missing_file_names_the_way_to_make_one() -> None:
    with pytest.raises(TailraceError) as refused:
        load("not there.yml")
    assert refused.value.code == "config.invalid"
    assert refused.value.hint == "tailrace init SOURCE SINK --file 'not there.yml'"


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(TailraceError, match="cannot be read"):
        load(str(tmp_path))
