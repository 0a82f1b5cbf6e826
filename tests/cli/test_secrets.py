"""Secrets appear nowhere: not in what commands print, not in logs, errors or files, and not where `ps` looks."""

from __future__ import annotations

import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest

from tests.cli.conftest import Tailrace
from tests.cli.process import DEADLINE_S, database

ADAPTOR: Final = '''
"""SQLite behind a password, with a driver that puts all it knows into its errors, as some do."""

import logging
from typing import Literal

from pydantic import AfterValidator, SecretStr
from pyspark import TaskContext
from typing_extensions import Annotated

from tailrace.adaptor.registry import Adaptor
from tailrace.adaptor.sqlite.options import SqliteReaderOptions, SqliteWriterOptions

log = logging.getLogger("tailrace.adaptor.vault")


def is_address(address):
    if "://" not in address.get_secret_value():
        raise ValueError(f"this is no address: {address.get_secret_value()}")
    return address


class Secrets:
    def log_in(self, breaks):
        known = f"{self.address.get_secret_value()} with {self.password.get_secret_value()!r}"
        log.warning("logging in to %s", known)
        if breaks:
            raise RuntimeError(f"cannot log in to {known}")


class VaultReaderOptions(Secrets, SqliteReaderOptions):
    address: Annotated[SecretStr, AfterValidator(is_address)]
    password: SecretStr
    breaks: bool = False

    def open(self):
        self.log_in(self.breaks)
        return super().open()

    def probe(self):
        self.log_in(self.breaks)
        return super().probe()


class VaultWriterOptions(Secrets, SqliteWriterOptions):
    address: Annotated[SecretStr, AfterValidator(is_address)]
    password: SecretStr
    breaks: Literal["never", "driver", "task"] = "never"

    def open(self):
        self.log_in(self.breaks == ("task" if TaskContext.get() else "driver"))
        return super().open()

    def probe(self):
        self.log_in(self.breaks != "never")
        return super().probe()


ADAPTOR = Adaptor("vault", "SQLite behind a password", VaultReaderOptions, VaultWriterOptions)
'''
SHOP: Final = """
pipeline: shop
log: log
read:
  vault: {path: shop.db, address: "${VAULT_ADDRESS}", password: "${VAULT_PASSWORD}"}
write:
  - name: well
    vault: {path: copy.db, address: "vault://me:${VAULT_ENCODED}@there/copy", password: "${VAULT_PASSWORD}"}
  - name: driver
    vault: {path: copy2.db, address: "${VAULT_ADDRESS}", password: "${VAULT_PASSWORD}", breaks: driver}
  - name: task
    vault: {path: copy3.db, address: "${VAULT_ADDRESS}", password: "${VAULT_PASSWORD}", breaks: task}
settings:
  spark:
    spark.hadoop.vault.password: "${VAULT_PASSWORD}"
    spark.eventLog.enabled: "true"
    spark.eventLog.compress: "false"
    spark.eventLog.dir: "file:${EVENTS}"
"""
WELL: Final = SHOP[: SHOP.index("  - name: driver")] + SHOP[SHOP.index("settings:") :]


@pytest.fixture
def canary() -> str:
    """A password that occurs nowhere else, with signs that change their form on the way."""
    return f"canary{secrets.token_hex(8)}/@ 'ü"


@pytest.fixture(autouse=True)
def vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, canary: str) -> Path:
    """The adaptor as another package would bring it, a source and a pipeline file without a secret in it."""
    plugin = tmp_path / "plugin"
    (plugin / "vault-1.dist-info").mkdir(parents=True)
    (plugin / "vault.py").write_text(ADAPTOR)
    (plugin / "vault-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: vault\nVersion: 1\n")
    (plugin / "vault-1.dist-info" / "entry_points.txt").write_text("[tailrace.adaptors]\nvault = vault:ADAPTOR\n")
    monkeypatch.syspath_prepend(str(plugin))
    home = tmp_path / "home"
    (home / "events").mkdir(parents=True)
    monkeypatch.chdir(home)
    environment = {
        "PYTHONPATH": str(plugin),
        "VAULT_PASSWORD": canary,
        "VAULT_ENCODED": quote(canary, safe=""),
        "VAULT_ADDRESS": f"vault://me:{quote(canary, safe='')}@there/shop",
        "EVENTS": str(home / "events"),
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (home / "shop.yml").write_text(SHOP)
    (home / "well.yml").write_text(WELL)
    with database(home / "shop.db") as shop:
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, price REAL)")
        shop.executemany("INSERT INTO orders VALUES (?, ?)", [(number, number / 2) for number in range(20)])
    return home


def assert_nowhere(text: str, canary: str) -> None:
    at = text.find(canary[6:22])  # what stays as it is in every form of it
    assert at < 0, text[max(0, at - 500) : at + 100]


@contextmanager
def watched_processes() -> Iterator[set[str]]:
    """The command lines of all processes of this machine that there are within."""
    seen: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            for process in Path("/proc").iterdir():
                if process.name.isdigit():
                    try:
                        seen.add((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
                    except OSError:
                        continue  # it has ended

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def command(*arguments: str) -> tuple[int, str]:
    """A command in a process of its own: its exit status, and all that it says."""
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", *arguments], capture_output=True, text=True, timeout=DEADLINE_S
    )
    return done.returncode, done.stdout + done.stderr


def test_commands_without_spark(tailrace: Tailrace, canary: str) -> None:
    said = ""
    for arguments in (
        ("init", "vault", "vault", "--file", "new.yml", "--schema"),
        ("about", "vault"),
        ("about", "--schema"),
        ("check", "shop.yml"),
        ("check", "shop.yml", "--json"),
        ("doctor", "shop.yml"),
        ("doctor", "shop.yml", "--json"),
        ("plan", "shop.yml"),
        ("plan", "shop.yml", "--json"),
        ("status", "shop.yml"),
        ("status", "shop.yml", "--json"),
        ("uninstall", "shop.yml", "--yes"),
    ):
        outcome = tailrace(*arguments)
        assert (outcome.status == 1) == (arguments[0] == "doctor"), outcome
        said += outcome.out + outcome.err
    assert "cannot log in to ***" in said
    assert "${PASSWORD}" in Path("new.yml").read_text()
    assert_nowhere(said + "".join(path.read_text() for path in Path().glob("new.*")), canary)


READ: Final = 'vault: {path: shop.db, address: "${VAULT_ADDRESS}", password: "${VAULT_PASSWORD}"}'


@pytest.mark.parametrize(
    "wrong",
    [
        READ.replace("password", "pasword"),
        READ.replace('"${VAULT_ADDRESS}"', '"${VAULT_PASSWORD}"'),
        READ.replace('"${VAULT_ADDRESS}"', '"{literal}"'),
        READ.replace('"${VAULT_PASSWORD}"', '["${VAULT_PASSWORD}"]'),
        READ.replace('"${VAULT_PASSWORD}"', "*{word}"),
        READ.replace('"${VAULT_PASSWORD}"', "!{word} x"),
        READ.replace('"${VAULT_PASSWORD}"', '"{word}'),
        READ.replace("shop.db", '"s3://me:${VAULT_ENCODED}@there/x"'),
        READ[:-1] + ', busy: "${VAULT_PASSWORD}"}',
        READ.replace("{path", '{breaks: "${VAULT_PASSWORD}", path'),
        READ + '\n  namespace: "${VAULT_PASSWORD}("',
        READ.replace("{path", "{breaks: true, path"),
    ],
)
def test_wrong_values(tailrace: Tailrace, canary: str, wrong: str) -> None:
    """Mistakes are told without what was written, be it in the environment or in the file."""
    wrong = wrong.replace("{literal}", canary).replace("{word}", canary[:22])
    text = SHOP.replace(SHOP[SHOP.index("  vault:") : SHOP.index("write:")], f"  {wrong}\n")
    Path("wrong.yml").write_text(text)
    for arguments in (["check"], ["check", "--json"], ["plan"], ["plan", "--json"], ["uninstall", "--yes"]):
        outcome = tailrace(arguments[0], "wrong.yml", *arguments[1:])
        assert outcome.status != 0 or arguments[0] == "check", outcome
        assert_nowhere(outcome.out + outcome.err, canary)


def test_runs_on_spark(vault: Path, canary: str) -> None:
    """With a writer that works, and two whose driver tells everything, in the process of the run and in a task."""
    said: list[str] = []

    def run(status: int, *arguments: str) -> str:
        found, text = command(*arguments)
        assert found == status, text
        said.append(text)
        return text

    with watched_processes() as seen:
        run(1, "run", "shop.yml", "--once", "--log-level", "debug")
        told = run(0, "status", "shop.yml") + run(0, "status", "shop.yml", "--json")
        run(0, "verify", "well.yml", "--json", "--master", "local[2]")
        run(3, "rebuild", "well.yml", "main.orders", "--at", "24", "--json", "--master", "nowhere://")

    assert "writer driver: " in told
    assert "writer task: " in told
    assert told.count("cannot log in to ***") >= 4
    with database(vault / "copy.db") as copy:
        assert copy.execute("SELECT count(*) FROM orders").fetchone() == (20,)
    assert any("org.apache.spark.deploy.SparkSubmit" in line and str(vault) in line for line in seen)
    for line in (*seen, *said):
        assert_nowhere(line, canary)
    files = [path for path in vault.rglob("*") if path.is_file()]
    events = [path for path in files if path.name.startswith("events_")]
    masters = ['"spark.master":"local[2]"' in path.read_text() for path in events]
    assert sorted(masters) == [False, True]  # of the run, and of the comparison
    assert any("cannot log in to ***" in path.read_text() for path in files if path.name == "spark.log")
    for path in files:
        assert_nowhere(path.read_bytes().decode(errors="replace"), canary)
