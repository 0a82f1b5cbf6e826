"""What node files say about tunables."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tailrace.log.commitlog import CommitLog
from tailrace.node.form import assemble as assemble_node
from tailrace.topology import replicanode
from tailrace.topology.form import assemble as assemble_replica
from tailrace.topology.knobs import Knobs
from tailrace.topology.registry import Registry
from tailrace.topology.replica import Replica, Settings
from tailrace.topology.replicanode import ReplicaNode, settings_of
from tailrace.topology.sourceside import knobs_of
from tailrace.topology.storage import NoStorage

NODE = {"node": "a", "data": "./a", "founder": True}
REPLICA: dict[str, Any] = {
    "node": "r",
    "data": "./r",
    "replicate_from": {"sources": [{"name": "a", "address": "127.0.0.1:1", "token": "word"}]},
}
DIALS = {"secret": "word", "registry": {"address": "127.0.0.1:1", "token": "word", "database": "shop"}}


def changed_registry() -> Registry:
    """One in which every value is another one than the default."""
    registry = Registry(NoStorage())
    for name, text in {
        "physrep_fanout": "20",
        "physrep_keepalive_freq_sec": "21",
        "blocking_physrep": "on",
        "physrep_pollms": "22",
        "physrep_no_source_alarm_threshold": "23",
        "physrep_max_rollback": "24",
        "physrep_check_minlog_freq_sec": "25",
        "physrep_exit_on_invalid_logstream": "on",
        "revsql_connect_freq_sec": "26",
        "revsql_host_refresh_freq_sec": "27",
    }.items():
        registry.set_tunable(name, text)
    return registry


def node_knobs(**more: Any) -> Knobs:
    spec, problems = assemble_node({**NODE, **more}, ".")
    assert spec is not None, problems
    return knobs_of(spec.form)


def replica_of(directory: Path, more: dict[str, Any], **replicate: Any) -> ReplicaNode:
    said = {**REPLICA, **more, "replicate_from": {**REPLICA["replicate_from"], **replicate}}
    form, problems = assemble_replica(said, str(directory))
    assert form is not None, problems
    return ReplicaNode(form, print)


def test_what_a_node_s_file_says_wins() -> None:
    knobs = node_knobs(
        fanout=3,
        retention={"every": "2s"},
        dials={**DIALS, "refresh": "4s", "every": "5s"},
        tunables={"physrep_debug": True},
    )
    knobs.learn(changed_registry().tuning())
    assert knobs.number("physrep_fanout") == 3
    assert knobs.seconds("physrep_check_minlog_freq_sec") == 2
    assert (knobs.seconds("revsql_host_refresh_freq_sec"), knobs.seconds("revsql_connect_freq_sec")) == (4, 5)
    assert knobs.is_on("physrep_debug")


def test_what_a_node_s_file_does_not_say_the_registry_does() -> None:
    knobs = node_knobs(retention={}, dials=DIALS)
    assert knobs.number("physrep_fanout") == 8
    assert knobs.seconds("physrep_check_minlog_freq_sec") == 60, "as long as no registry was heard"
    knobs.learn(changed_registry().tuning())
    assert knobs.number("physrep_fanout") == 20
    assert knobs.seconds("physrep_check_minlog_freq_sec") == 25
    assert (knobs.seconds("revsql_host_refresh_freq_sec"), knobs.seconds("revsql_connect_freq_sec")) == (27, 26)


def test_a_replica_does_what_its_file_says(tmp_path: Path) -> None:
    node = replica_of(
        tmp_path,
        {"fanout": 3, "tunables": {"physrep_exit_on_invalid_logstream": "off"}},
        keepalive="1s",
        blocking=False,
        poll="2ms",
        alarm_after=4,
        max_rollback="5kB",
    )
    node.knobs.learn(changed_registry().tuning())
    settings = settings_of(node._form, node.knobs)
    assert (settings.keep_s, settings.waits, settings.poll_s, settings.alarm_after) == (1, False, 0.002, 4)
    assert settings.max_rollback == (5000, 0)
    assert not settings.ends_when_invalid
    assert node.knobs.number("physrep_fanout") == 3


def test_a_replica_does_what_the_registry_says(tmp_path: Path) -> None:
    node = replica_of(tmp_path, {})
    assert settings_of(node._form, node.knobs).max_rollback == (0, 0)
    node.knobs.learn(changed_registry().tuning())
    settings = settings_of(node._form, node.knobs)
    assert (settings.keep_s, settings.waits, settings.poll_s, settings.alarm_after) == (21, True, 0.022, 23)
    assert settings.max_rollback == (0, 24)
    assert settings.ends_when_invalid


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"tunables": {"physrep_fanuot": 3}}, "physrep_fanout"),
        ({"tunables": {"physrep_fanout": 0}}, "whole number"),
        ({"tunables": {"physrep_max_candidates": 3}}, "not for nodes"),
        ({"tunables": {"physrep_metadb_host": "a:1"}}, "not for nodes"),
        ({"tunables": {"physrep_fanout": 3}, "fanout": 4}, "say it once"),
    ],
)
def test_mistakes(more: dict[str, Any], said: str) -> None:
    for assemble, file in ((assemble_node, NODE), (assemble_replica, REPLICA)):
        found, problems = assemble({**file, **more}, ".")
        assert found is None
        assert said in str(problems[0])


def test_a_node_is_known_to_one_registry_or_the_other() -> None:
    said = {**NODE, "registry": {"path": "r.db", "database": "shop"}, "announce": DIALS["registry"]}
    found, problems = assemble_node(said, ".")
    assert (found, "name one of the two" in str(problems[0])) == (None, True)


def test_a_replica_removes_as_often_as_the_registry_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node, removed = replica_of(tmp_path, {"retention": {}}), list[str]()
    monkeypatch.setattr(replicanode, "remove_unneeded", lambda directory, *_: removed.append(directory))
    (tmp_path / "r").mkdir()
    CommitLog.open(node._directory).close()
    node.replica = Replica(node._directory, "r", list, Settings(), print)
    node._retained_s = time.monotonic() - 30
    node._retain()
    assert removed == [], "every minute, without a registry"
    node.knobs.learn(changed_registry().tuning())
    node._retain()
    assert removed == [node._directory]
