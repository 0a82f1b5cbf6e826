"""Tunables: those of Comdb2's documentation with its defaults, changed only to what they can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.topology.tunables import TUNABLES, By, Tunables, Value

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "topology.md"
SEED: dict[str, Value] = {
    "blocking_physrep": False,
    "physrep_check_minlog_freq_sec": 10,
    "physrep_debug": False,
    "physrep_exit_on_invalid_logstream": False,
    "physrep_fanout": 8,
    "physrep_hung_replicant_check_freq_sec": 10,
    "physrep_hung_replicant_threshold": 60,
    "physrep_i_am_metadb": False,
    "physrep_keepalive_freq_sec": 10,
    "physrep_max_candidates": 6,
    "physrep_max_pending_replicants": 10,
    "physrep_metadb_host": "",
    "physrep_metadb_name": "",
    "physrep_reconnect_penalty": 5,
    "physrep_register_interval": 3600,
    "physrep_shuffle_host_list": False,
    "physrep_source_dbname": "",
    "physrep_source_host": "",
    "revsql_allow_command_execution": False,
    "revsql_cdb2_debug": False,
    "revsql_connect_freq_sec": 5,
    "revsql_debug": False,
    "revsql_host_refresh_freq_sec": 5,
}


def test_every_tunable_of_comdb2_has_its_default() -> None:
    assert {name: TUNABLES[name].default for name in SEED} == SEED


def test_a_tunable_is_changed() -> None:
    tunables = Tunables()
    assert tunables.set("physrep_fanout", " 3 ") == 3
    assert tunables.set("physrep_keepalive_freq_sec", "2m") == 120
    assert tunables.set("physrep_debug", "ON") is True
    assert tunables.set("physrep_metadb_host", "a:1,b:1") == "a:1,b:1"
    assert tunables.get("physrep_fanout") == tunables.number("physrep_fanout") == 3


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("physrep_fanout", "0"),
        ("physrep_fanout", "-1"),
        ("physrep_fanout", "1.5"),
        ("physrep_fanout", "9" * 5000),
        ("physrep_fanout", "9999999999"),
        ("physrep_keepalive_freq_sec", "0"),
        ("physrep_keepalive_freq_sec", "soon"),
        ("physrep_debug", "maybe"),
        ("physrep_metadb_host", "a\nb"),
    ],
)
def test_what_a_tunable_cannot_be(name: str, text: str) -> None:
    tunables = Tunables()
    with pytest.raises(TailraceError) as refused:
        tunables.set(name, text)
    assert refused.value.code == "input.invalid"
    assert tunables.get(name) == TUNABLES[name].default


def test_near_names_are_told() -> None:
    with pytest.raises(TailraceError, match="physrep_fanout") as refused:
        Tunables().set("physrep_fan_out", "3")
    assert refused.value.code == "topology.unknown_tunable"
    with pytest.raises(TailraceError, match="tailrace topology tunables"):
        Tunables().get("zzz")


def test_what_was_kept_counts_and_what_no_longer_exists_does_not() -> None:
    assert Tunables({"physrep_fanout": "3", "physrep_gone": "1"}).get("physrep_fanout") == 3


@pytest.mark.parametrize("name", TUNABLES)
def test_a_default_can_be_written_and_read(name: str) -> None:
    tunable = TUNABLES[name]
    assert tunable.read(tunable.show(tunable.default)) == tunable.default


def test_the_guide_has_every_tunable() -> None:
    rows = {line.split("|")[1].strip().strip("`"): line for line in GUIDE.read_text().splitlines() if "|" in line}
    for name, tunable in TUNABLES.items():
        shown = f"{tunable.show(tunable.default)} {tunable.unit}".strip() or "-"
        assert rows.get(name) == f"| `{name}` | {shown} | {tunable.help} |", name


def test_commands_over_reverse_connections_cannot_be_allowed() -> None:
    with pytest.raises(TailraceError, match="carries the bytes of a log, and no commands"):
        Tunables().set("revsql_allow_command_execution", "on")
    assert Tunables().set("revsql_allow_command_execution", "off") is False
    assert Tunables({"revsql_allow_command_execution": "on"}).get("revsql_allow_command_execution") is False


def test_what_nobody_obeys_says_so() -> None:
    for tunable in TUNABLES.values():
        is_told = tunable.help.startswith(("Only told", "Cannot be on"))
        assert is_told == (tunable.obeyed_by is By.NOBODY), tunable.name
