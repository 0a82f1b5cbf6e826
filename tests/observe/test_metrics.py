"""What Prometheus fetches."""

from __future__ import annotations

import time

from prometheus_client.parser import text_string_to_metric_families

from tailrace.observe.metrics import OTHERS, PARTS_MAX, exposition
from tailrace.observe.model import Health, Kind, Lag, LogPart, NamespacePart, Overview, Part, Stuck, TreeNode, Wrong

Labels = tuple[tuple[str, str], ...]


def told(*parts: Part, **more: object) -> dict[tuple[str, Labels], float]:
    """By name and labels."""
    overview = Overview("shop", "pipeline", time.time(), True, parts=parts, **more)  # type: ignore[arg-type]
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(exposition(overview).decode())
        for sample in family.samples
    }


def of(kind: str, name: str) -> Labels:
    return (("kind", kind), ("name", name))


def test_figures_of_a_part() -> None:
    part = Part(
        Kind.WRITER,
        'a "b"\n\\c',
        "",
        "stopped",
        Health.BAD,
        41,
        Lag(7, 700, 1.5),
        2.5,
        3.5,
        stuck=Stuck(42, 44, "x", 1.0, False),
        more={"dead letters": 3},
    )
    found = told(part)
    labels = of("writer", 'a "b"\n\\c')
    assert {name: value for (name, each), value in found.items() if each == labels} == {
        "tailrace_lag_messages": 7,
        "tailrace_lag_bytes": 700,
        "tailrace_lag_seconds": 1.5,
        "tailrace_position": 41,
        "tailrace_rate_messages_per_second": 2.5,
        "tailrace_seen_seconds_ago": 3.5,
        "tailrace_health": 3,
        "tailrace_stuck_messages": 3,
        "tailrace_dead_letters": 3,
        "tailrace_invalidated": 0,
    }
    assert found["tailrace_info", (("name", "shop"), ("what", "pipeline"))] == 1
    assert found["tailrace_up", ()] == 1


def test_one_message_at_fault_is_one() -> None:
    """As the page says: those behind it were not tried."""
    stuck = Part(Kind.WRITER, "w", "", "stopped", Health.BAD, stuck=Stuck(42, 44, "x", 1.0, True))
    assert told(stuck)["tailrace_stuck_messages", of("writer", "w")] == 1


def test_what_nobody_knows_is_left_out() -> None:
    copy = Part(Kind.REPLICA, "x", "", "copies", Health.GOOD, lag=Lag(5, 500, None))
    assert ("tailrace_lag_seconds", of("replica", "x")) not in told(copy)
    found = told(Part(Kind.PEER, "x", "", "away", Health.WAITING))
    assert ("tailrace_lag_messages", of("peer", "x")) not in found
    assert ("tailrace_slot_bytes", of("peer", "x")) not in found


def test_a_thousand_parts_have_a_bounded_number_of_labels() -> None:
    parts = [
        Part(
            Kind.PEER,
            f"p{number}",
            "",
            "follows",
            Health.BAD if number == 999 else Health.GOOD,
            1000 - number,
            Lag(1, 10, number),
            more={"dead letters": 2},
        )
        for number in range(1000)
    ]
    found = told(*parts)
    names = {dict(labels)["name"] for name, labels in found if name == "tailrace_lag_messages"}
    assert len(names) == PARTS_MAX + 1
    others = of("peer", OTHERS)
    assert found["tailrace_lag_messages", others] == 1000 - PARTS_MAX
    assert found["tailrace_lag_seconds", others] == 999, "the worst of them"
    assert found["tailrace_health", others] == 3, "the worst of them"
    assert found["tailrace_position", others] == 1, "the worst of them"
    assert found["tailrace_dead_letters", others] == 2 * (1000 - PARTS_MAX)


def test_the_log_and_who_keeps_it() -> None:
    held = {f"c{number}": number for number in range(1000)}
    log = LogPart("log", 5, 20, 15, 4000, held)
    namespaces = tuple(NamespacePart(f"n{number}", number, 0, 0) for number in range(1000))
    found = told(log=log, namespaces=namespaces)
    assert found["tailrace_log_oldest_offset", ()] == 5
    assert found["tailrace_log_next_offset", ()] == 20
    keepers = {dict(labels)["consumer"] for name, labels in found if name == "tailrace_log_held_bytes"}
    assert len(keepers) == PARTS_MAX
    assert found["tailrace_log_held_bytes", (("consumer", "c999"),)] == 999, "the largest are told"
    assert ("tailrace_namespace_messages", (("namespace", "n0"),)) not in found


def test_invalidated_and_slots() -> None:
    lost = Part(Kind.PEER, "x", "", "lost", Health.BAD, wrong=Wrong("consumer.invalidated", "past its cap"))
    reader = Part(Kind.READER, "postgres", "", "running", Health.GOOD, more={"slot bytes": 1234})
    found = told(lost, reader)
    assert found["tailrace_invalidated", of("peer", "x")] == 1
    assert found["tailrace_slot_bytes", of("reader", "postgres")] == 1234


def test_a_topology_is_counted() -> None:
    tree = [TreeNode(f"n{number}", None, "shop", 1, "Active", Health.GOOD, "", 3.0) for number in range(1000)]
    tree.append(TreeNode("gone", None, "shop", None, "Inactive", Health.BAD, "", 90.0))
    found = told(tree=tuple(tree))
    assert found["tailrace_topology_nodes", (("health", "good"),)] == 1000
    assert found["tailrace_topology_nodes", (("health", "bad"),)] == 1
    assert found["tailrace_topology_silent_seconds", ()] == 90
    assert len(found) < 20


def test_parts_of_one_name_are_one_series() -> None:
    """A client may ask twice for the same snapshot; Prometheus takes no series twice."""
    parts = tuple(
        Part(Kind.SNAPSHOT, "shop for paris", f"request {number}", "", health, number, Lag(number, None, None))
        for number, health in ((1, Health.TROUBLED), (2, Health.GOOD))
    )
    lines = exposition(Overview("shop", "node", time.time(), True, parts=parts)).decode().splitlines()
    series = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(series) == len(set(series))
    found, labels = told(*parts), of("snapshot", "shop for paris")
    assert found["tailrace_lag_messages", labels] == 3
    assert found["tailrace_health", labels] == 2
    assert found["tailrace_position", labels] == 1
