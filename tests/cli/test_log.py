"""`tailrace log …` as an operator uses it."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.log.commitlog import CommitLog
from tailrace.message import Message, Micros, Op
from tests.cli.conftest import Tailrace

FIXTURE = Path(__file__).parents[1] / "fixtures" / "transporter-xlog"


def expected_blocks() -> list[tuple[str, str]]:
    """The commands of Transporter's own tool for the fixture, and what it printed."""
    text = (FIXTURE / "EXPECTED.md").read_text()
    return re.findall(r"\$ transporter xlog (show \d+)\n(.*?)\n\n", text, re.DOTALL)


@pytest.mark.parametrize(("command", "printed"), expected_blocks())
def test_show_prints_what_transporter_prints(tailrace: Tailrace, command: str, printed: str) -> None:
    assert tailrace("log", *command.split(), "--log", FIXTURE).out == printed + "\n"


def test_transporters_log_is_only_looked_at(tailrace: Tailrace, tmp_path: Path) -> None:
    log = tmp_path / "xlog"
    shutil.copytree(FIXTURE, log)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in log.rglob("*") if path.is_file()}
    assert tailrace("log", "current", "--log", log).out == "24\n"
    assert tailrace("log", "oldest", "--log", log).out == "0\n"
    assert tailrace("log", "verify", "--log", log).status == 0
    assert tailrace("log", "stat", "--json", "--log", log).json["messages"] == 25
    assert tailrace("offset", "list", "--json", "--log", log).json[0]["position"] == 24
    assert tailrace("offset", "show", "sink", "--json", "--log", log).json["namespaces"] == {"orders.json": 24}
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in log.rglob("*") if path.is_file()}
    assert after == before


def test_show_prints_all_that_a_message_says(tailrace: Tailrace, shop: Path) -> None:
    assert tailrace("log", "show", 8).out == (
        "offset    : 8\n"
        "timestamp : 2023-11-14 22:13:28 +0000 UTC\n"
        "mode      : SYNC\n"
        "op        : UPDATE\n"
        "key       : shop.orders\n"
        'value     : {"id":8}\n'
        'before    : {"id":8,"old":true}\n'
        "origin    : 7\n"
        "lsn       : 9\n"
        "tx        : t8\n"
    )


def test_show_a_range_and_a_selection(tailrace: Tailrace, shop: Path) -> None:
    def shown(*arguments: object) -> list[int]:
        return [line["offset"] for line in tailrace("log", "show", *arguments, "--json").json_lines]

    assert shown(2, 5) == [2, 3, 4, 5]
    assert shown(0, 9, "--namespace", "/items/") == [1, 3, 5, 7, 9]
    assert shown(0, 9, "--destination", "warehouse") == [4]
    assert shown("--namespace", "/items/") == [1, 3, 5, 7, 9]
    assert tailrace("log", "show", 3, "--json").json == {
        "offset": 3,
        "timestamp": "2023-11-14T22:13:23+00:00",
        "mode": "sync",
        "op": "insert",
        "namespace": "shop.items",
        "data": {"id": 3},
        "before": None,
        "origin": 7,
        "lsn": 4,
        "tx": "t3",
        "destinations": [],
    }
    assert tailrace("log", "show", 0, 1).out.count("\n\noffset") == 1


@pytest.mark.parametrize(
    ("arguments", "status", "code", "says"),
    [
        (("log", "show", 10), 2, "log.past_end", "the newest is 9"),
        (("log", "show"), 2, "input.invalid", "which messages"),
        (("log", "show", 3, 99), 2, "log.past_end", "the newest is 9"),
        (("log", "show", 5, 2), 2, "log.bad_range", "backwards"),
        (("log", "show", 0, "--namespace", "("), 2, "input.invalid", "regular expression"),
        (("log", "compact", "--by", "color"), 2, "input.invalid", "--by color"),
        (("log", "tail", "--from", 11), 2, "log.past_end", "the newest is 9"),
        (("log", "retain", "--keep-bytes", "1XB"), 2, "input.invalid", "1XB"),
        (("offset", "show", "nobody"), 2, "consumer.unknown", "nobody"),
        (("offset", "register", "../evil"), 2, "name.invalid", "path"),
        (("offset", "rewind", "nobody", "soon"), 2, "input.invalid", "soon"),
    ],
)
def test_bad_input_gets_a_code_and_the_next_command(
    tailrace: Tailrace, shop: Path, arguments: tuple[object, ...], status: int, code: str, says: str
) -> None:
    outcome = tailrace(*arguments)
    assert (outcome.status, outcome.out) == (status, "")
    assert f"error {code}: " in outcome.err
    assert says in outcome.err
    assert "\n  next: " in outcome.err
    assert '"code": "' + code in tailrace(*arguments, "--json").err


def test_no_log_here(tailrace: Tailrace, tmp_path: Path) -> None:
    outcome = tailrace("log", "current", "--log", tmp_path / "nowhere")
    assert outcome.status == 2
    assert "log.not_found" in outcome.err
    assert not (tmp_path / "nowhere").exists()


def test_the_log_has_to_be_named(tailrace: Tailrace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAILRACE_LOG", raising=False)
    outcome = tailrace("log", "current")
    assert outcome.status == 2
    assert "--log" in outcome.err


def test_below_the_oldest_says_the_oldest(tailrace: Tailrace, shop: Path) -> None:
    tailrace("offset", "register", "sink", "--from", "newest")
    assert tailrace("log", "retain", "--json").json["freed_bytes"] > 0
    outcome = tailrace("log", "show", 2)
    assert outcome.status == 2
    assert "log.below_oldest" in outcome.err
    assert "the oldest is 6" in outcome.err
    assert tailrace("log", "oldest").out == "6\n"


def test_what_was_compacted_away_says_what_is_next(tailrace: Tailrace, shop: Path) -> None:
    tailrace("offset", "register", "sink", "--from", "newest")
    compacted = tailrace("log", "compact", "--json").json
    assert compacted["messages_removed"] == 4
    outcome = tailrace("log", "show", 0)
    assert outcome.status == 2
    assert "the next is 4" in outcome.err
    assert [line["offset"] for line in tailrace("log", "show", 0, 9, "--json").json_lines] == [4, 5, 6, 7, 8, 9]


def test_retain_says_who_holds_what(tailrace: Tailrace, shop: Path) -> None:
    tailrace("offset", "register", "slow")
    assert "kept 0-5" in tailrace("log", "retain").out
    assert "held by slow" in tailrace("log", "retain").out
    tailrace("offset", "mark", "slow", 5, "--yes")
    assert "would remove 0-5" in tailrace("log", "retain", "--dry-run").out
    assert "removed 0-5" in tailrace("log", "retain").out


def test_stat_and_its_table(tailrace: Tailrace, shop: Path) -> None:
    tailrace("offset", "register", "sink")
    found = tailrace("log", "stat", "--json").json
    assert (found["oldest"], found["next_offset"], found["messages"]) == (0, 10, 10)
    assert [segment["fate"]["held_by"] for segment in found["segments"]] == [["sink"], ["sink"]]
    assert found["namespaces"]["shop.items"] == {
        "first": 1,
        "last": 9,
        "messages": 5,
        "bytes": found["namespaces"]["shop.items"]["bytes"],
    }
    table = tailrace("log", "stat").out
    assert "held by sink" in table
    assert "shop.orders" in table


def test_verify_and_repair_a_damaged_log(tailrace: Tailrace, shop: Path) -> None:
    assert tailrace("log", "verify").out.endswith("the log is sound\n")
    assert tailrace("log", "repair", "--reason", "none").out == "the log is sound, nothing was changed\n"
    segment = shop / "00000000000000000000.log"
    raw = bytearray(segment.read_bytes())
    raw[len(raw) // 2] ^= 1
    segment.write_bytes(raw)
    outcome = tailrace("log", "verify")
    assert outcome.status == 1
    assert "00000000000000000000.log, byte" in outcome.out
    assert tailrace("log", "verify", "--json").json["ok"] is False
    repaired = tailrace("log", "repair", "--reason", "no copy left", "--yes", "--json").json
    assert repaired["next_offset"] == int(tailrace("log", "current").out) + 1
    assert tailrace("log", "verify").status == 0
    assert list(Path(repaired["aside"]).iterdir())
    with CommitLog.open(shop) as log:
        log.append_messages([Message(Op.INSERT, Micros(0), "shop.orders", {"id": 99})])
    assert tailrace("offset", "audit", "--json").json["action"] == "repair"


def test_repair_asks_and_changes_nothing_without_an_answer(tailrace: Tailrace, shop: Path) -> None:
    segment = shop / "00000000000000000000.log"
    segment.write_bytes(segment.read_bytes()[:-1])
    before = segment.read_bytes()
    assert tailrace("log", "repair", "--reason", "x").status == 2
    assert segment.read_bytes() == before


def test_tail_prints_what_is_appended_meanwhile(shop: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tailrace", "log", "tail", "--json", "--log", str(shop)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        try:
            assert "from offset 10" in tail.stderr.readline()
            with CommitLog.open(shop) as log:
                log.append_messages([Message(Op.INSERT, Micros(0), "shop.orders", {"id": "new"})])
            assert '"id":"new"' in tail.stdout.readline()
            tail.send_signal(signal.SIGINT)
            assert tail.wait(timeout=120) == 130
        finally:
            tail.kill()  # one that does not end would be waited for, and spoil the tests that follow


def test_tail_ends_when_idle(tailrace: Tailrace, shop: Path) -> None:
    outcome = tailrace("log", "tail", "--from", 8, "--idle", "10ms", "--json")
    assert [line["offset"] for line in outcome.json_lines] == [8, 9]


def test_a_namespace_cannot_speak_to_the_terminal(tailrace: Tailrace, tmp_path: Path) -> None:
    from tailrace.log.frame import encode_plain
    from tailrace.message import Mode

    evil = encode_plain(
        offset=0, timestamp_s=0, mode=Mode.COPY, op=Op.INSERT, key=b"a\x1b[2Jb", data=b'{"a":"\\u001b[2J"}'
    )
    (tmp_path / "00000000000000000000.log").write_bytes(evil)
    for arguments in (("log", "show", 0), ("log", "stat")):
        assert "\x1b[2J" not in tailrace(*arguments, "--log", tmp_path).out
