"""`tailrace check`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Tailrace
from tests.pipeline.shelf import offer

ROOT = Path(__file__).parents[2]
GOOD = r"""
pipeline: shop
read:
  shelf: {path: in.json, password: "${PASSWORD}"}
  namespace: main\..*
write:
  - sink: {path: out.json, password: hunter2}
    name: copy
    through: [omit: [email], skip: {field: total, operator: ">", match: 10}]
  - shelf: {path: other.json}
"""


@pytest.fixture(autouse=True)
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    offer(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PASSWORD", "hunter2")
    Path("shop.yml").write_text(GOOD)
    return tmp_path


def test_it_prints_the_way_of_the_data(tailrace: Tailrace, tmp_path: Path) -> None:
    outcome = tailrace("check", "shop.yml")
    assert outcome.status == 0
    assert outcome.out == (
        "pipeline shop\n"
        f"  read   shelf {tmp_path}/in.json, namespaces /main\\..*/\n"
        f"  log    {tmp_path}/.tailrace/shop\n"
        "  write  copy: namespaces all\n"
        "         -> omit\n"
        "         -> skip\n"
        f"         -> sink {tmp_path}/out.json\n"
        "  write  shelf: namespaces all\n"
        f"         -> shelf {tmp_path}/other.json\n"
    )


def test_the_same_as_json(tailrace: Tailrace) -> None:
    found = tailrace("check", "shop.yml", "--json").json
    assert found["ok"]
    assert found["write"][0]["through"] == ["omit", "skip"]


def test_it_touches_nothing(tailrace: Tailrace, tmp_path: Path) -> None:
    tailrace("check", "shop.yml")
    assert [path.name for path in tmp_path.iterdir()] == ["shop.yml"]


def test_problems_are_your_input(tailrace: Tailrace) -> None:
    Path("shop.yml").write_text(GOOD.replace("name:", "nmae:").replace("in.json", "in.json, poll: soon"))
    outcome = tailrace("check", "shop.yml")
    assert outcome.status == 2
    assert outcome.out == ""
    assert [line.split(": ")[0] for line in outcome.err.splitlines()] == ["shop.yml:4:32", "shop.yml:8:5"]


def test_problems_as_json(tailrace: Tailrace) -> None:
    Path("shop.yml").write_text(GOOD.replace("name:", "nmae:"))
    outcome = tailrace("check", "shop.yml", "--json")
    assert outcome.status == 2
    message = "unknown key 'nmae' in write[1]; did you mean name?"
    problem = {"file": "shop.yml", "line": 8, "column": 5, "message": message}
    assert outcome.json == {"ok": False, "problems": [problem]}


def test_a_missing_file_is_your_input(tailrace: Tailrace) -> None:
    assert tailrace("check", "shup.yml").status == 2


@pytest.mark.parametrize("command", ["check", "doctor", "plan"])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_secrets_never_show(tailrace: Tailrace, command: str, options: tuple[str, ...]) -> None:
    Path("in.json").write_text("{}")
    for text in (GOOD, GOOD.replace("pipeline:", "pipelin:"), GOOD.replace('"${PASSWORD}"', '["${PASSWORD}"]')):
        Path("shop.yml").write_text(text)
        outcome = tailrace(command, "shop.yml", *options)
        assert "hunter2" not in outcome.out + outcome.err


def test_it_starts_no_spark(shop: Path) -> None:
    program = (
        "import sys\n"
        "import pytest\n"
        "from tailrace.cli.main import run\n"
        "from tests.pipeline.shelf import offer\n"
        "offer(pytest.MonkeyPatch())\n"
        f"sys.argv = ['tailrace', 'check', {str(shop / 'shop.yml')!r}]\n"
        "try:\n    run()\nexcept SystemExit as done:\n    print(done.code, 'pyspark' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 False"
