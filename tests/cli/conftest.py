"""Running the command line in this process, as a shell would."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tailrace.cli.main import run
from tailrace.log.commitlog import CommitLog
from tailrace.message import Lsn, Message, Micros, NodeId, Op


@dataclass(frozen=True)
class Outcome:
    """What a command printed and returned."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Tailrace = Callable[..., Outcome]


@pytest.fixture
def tailrace(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tailrace:
    def command(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["tailrace", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exited:
            run()
        printed = capsys.readouterr()
        return Outcome(int(exited.value.code or 0), printed.out, printed.err)

    return command


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log of two segments with ten messages, named by TAILRACE_LOG."""
    directory = tmp_path / "shop"
    with CommitLog.open(directory) as log:
        for number in range(10):
            if number == 6:
                log.roll()
            namespace = "shop.orders" if number % 2 == 0 else "shop.items"
            message = Message(
                op=Op.INSERT if number < 8 else Op.UPDATE,
                timestamp=Micros(1_700_000_000_000_000 + number * 1_000_000),
                namespace=namespace,
                data={"id": number},
                before={"id": number, "old": True} if number >= 8 else None,
                origin=NodeId(7),
                lsn=Lsn(number + 1),
                tx=f"t{number}",
                destinations=("warehouse",) if number == 4 else (),
            )
            log.append_messages([message])
    monkeypatch.setenv("TAILRACE_LOG", str(directory))
    return directory
