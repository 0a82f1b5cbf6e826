"""What is said as JSON lines."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from tailrace.cli.jsonlines import JsonLines
from tailrace.cli.jsonlog import JsonHandler, is_wanted, log_line
from tailrace.cli.running import Talk, TalkHandler
from tailrace.errors import TailraceError
from tailrace.masking import keep_secret
from tailrace.message import Offset
from tailrace.pipeline.run import Summary
from tests.cli.conftest import Tailrace
from tests.node.test_serve import free_ports
from tests.relay.nodes import wait_for

SUMMARY = Summary(captured={}, delivered={"copy": {}}, end=Offset(8), seconds=1.0)
CANARY = "canary-55e1c0"


def test_every_line_is_an_object() -> None:
    stream = io.StringIO()
    display = JsonLines(stream)
    with Talk(display) as talk:
        talk.say("a\x1b[2J\nb")
        logger = logging.Logger("tailrace.test")
        logger.addHandler(TalkHandler(talk))
        logger.warning("consumer %s is invalidated", "lake")
        talk.ended(SUMMARY)
    display.fail(TailraceError("destination.refused", "no", hint="mend it"), "writer copy")
    first, second, *others, last = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (first["level"], first["part"], first["text"]) == ("info", "run", "a\\x1b[2J\\nb")
    assert (second["level"], second["part"]) == ("warning", "tailrace.test")
    assert {"captured 0 messages, 0/s", "ended at offset 7 after 1.0 s"} <= {each["text"] for each in others}
    assert (last["code"], last["next"], last["part"]) == ("destination.refused", "mend it", "writer copy")
    for each in (first, second, *others, last):
        assert datetime.fromisoformat(each["time"]).tzinfo is not None


def test_secrets_are_masked() -> None:
    keep_secret(CANARY)
    assert CANARY not in log_line(f"cannot log in with {CANARY}")


def test_how_something_failed_is_in_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The page says that the log of the process has it."""
    stream = io.StringIO()
    logger = logging.Logger("tailrace.test")
    with Talk(JsonLines(stream)) as talk:
        logger.addHandler(TalkHandler(talk))
        logger.addHandler(JsonHandler())
        try:
            raise ValueError("out of range")
        except ValueError:
            logger.exception("GET / failed")
    for told in (stream.getvalue(), capsys.readouterr().err):
        (line,) = told.splitlines()
        text = json.loads(line)["text"]
        assert "GET / failed\nTraceback" in text
        assert text.endswith("ValueError: out of range")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_line_is_json_whatever_the_terminal_can_print(encoding: str) -> None:
    text = "é 😀 \x85 \u2028 \udc80"
    raw = log_line(text).encode(encoding, "backslashreplace")
    assert len(raw.decode(encoding).splitlines()) == 1
    assert json.loads(raw)["text"] == text


@pytest.mark.parametrize(
    ("arguments", "is_json"),
    [
        (["run", "a.yml", "--log-format", "json"], True),
        (["run", "a.yml", "--log-format=json"], True),
        (["run", "a.yml", "--log-format", "text"], False),
        (["run", "json", "--log-format"], False),
    ],
)
def test_who_wants_them(arguments: list[str], is_json: bool) -> None:
    assert is_wanted(arguments) is is_json


def test_a_command_that_fails_before_anything_runs(tailrace: Tailrace) -> None:
    outcome = tailrace("run", "nowhere.yml", "--log-format", "json")
    told = json.loads(outcome.err)
    assert (outcome.status, told["level"], told["part"]) == (2, "error", "tailrace")
    assert told["code"]


def test_a_node(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    (tmp_path / "a.yml").write_text(
        f'node: a\ndata: ./a\nlisten: 127.0.0.1:{port}\nfounder: true\ntokens: {{all: "${{TOKEN}}"}}\n'
    )
    command = [sys.executable, "-m", "tailrace", "serve", "a.yml", "--log-format", "json"]
    environment = {**os.environ, "TOKEN": CANARY}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as node:
        try:
            wait_for((tmp_path / "a" / "status.json").exists, 60)
        finally:
            node.send_signal(signal.SIGTERM)
        _, said = node.communicate(timeout=60)
    told = [json.loads(line) for line in said.splitlines()]
    assert told[0]["part"] == "node"
    assert "has ended" in told[-1]["text"]
    assert CANARY not in said
