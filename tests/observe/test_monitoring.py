"""The dashboard and the alert rules that come with it, and the names of metrics in the guide."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tailrace.observe.metrics import exposition
from tailrace.observe.model import Health, Kind, Lag, LogPart, NamespacePart, Overview, Part, TreeNode

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "examples" / "monitoring"
OWN = re.compile(r"\btailrace_[a-z_]+\b")


def known() -> dict[str, set[str]]:
    """Every metric there is, with its labels: told of something that has everything."""
    part = Part(
        Kind.WRITER, "w", "", "running", Health.GOOD, 1, Lag(1, 1, 1.0), 1.0, 1.0,
        more={"dead letters": 1, "slot bytes": 1},
    )  # fmt: skip
    overview = Overview(
        "shop",
        "pipeline",
        time.time(),
        True,
        log=LogPart("log", 0, 1, 1, 1, {"w": 1}),
        namespaces=(NamespacePart("t", 1, 1, 0),),
        parts=(part,),
        tree=(TreeNode("n", None, "shop", 0, "Active", Health.GOOD, ""),),
    )
    return {
        family.name: {label for sample in family.samples for label in sample.labels}
        for family in text_string_to_metric_families(exposition(overview).decode())
    }


def selectors(expression: str) -> list[tuple[str, set[str]]]:
    """Metrics that an expression names, each with the labels it asks for."""
    return [
        (name, set(re.findall(r"(\w+)\s*(?:=~|=|!=)", asked)))
        for name, asked in re.findall(r"\b(tailrace_[a-z_]+)\b(?:\{([^}]*)\})?", expression)
    ]


def check(expression: str) -> None:
    found = selectors(expression)
    assert found
    for name, labels in found:
        assert name in known(), expression
        assert labels <= known()[name] | {"instance", "job"}, expression


def test_rules() -> None:
    said = yaml.safe_load((MONITORING / "alerts.yml").read_text())
    (group,) = said["groups"]
    assert group.keys() == {"name", "rules"}
    for rule in group["rules"]:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert {"alert", "expr", "labels", "annotations"} <= rule.keys()
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["action"]
        check(rule["expr"])
    names = {rule["alert"] for rule in group["rules"]}
    assert names >= {
        f"Tailrace{each}" for each in ("Lag", "LogHeld", "SlotBytes", "ReplicaDead", "Invalidated", "Stuck")
    }


def test_lag_is_alarmed_about_wherever_it_is_known() -> None:
    (group,) = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    (lag,) = (rule["expr"] for rule in group["rules"] if rule["alert"] == "TailraceLag")
    (kinds,) = re.findall(r'kind=~"([^"]*)"', lag)
    assert set(kinds.split("|")) == {"writer", "source", "peer", "replica", "store", "queue", "sync"}


def test_followers_that_are_silent_are_noticed() -> None:
    """One that is away is only waiting: nothing says that this is wrong, but for how long it is."""
    (group,) = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    (dead,) = (rule["expr"] for rule in group["rules"] if rule["alert"] == "TailraceReplicaDead")
    assert re.search(r'tailrace_seen_seconds_ago\{kind=~"replica\|peer"\} > \d+', dead)


def test_scraping_is_valid_and_loads_the_rules() -> None:
    said = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    assert all((MONITORING / name).exists() for name in said["rule_files"])
    (job,) = said["scrape_configs"]
    assert job["authorization"] == {"credentials_file": "tailrace-token"}, "no token in a file that is shown around"


def test_dashboard() -> None:
    board = json.loads((MONITORING / "dashboard.json").read_text())
    variables = {each["name"] for each in board["templating"]["list"]}
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for target in panel["targets"]:
            check(target["expr"])
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= variables


def test_every_metric_is_in_the_guide() -> None:
    guide = (ROOT / "docs" / "guides" / "observing.md").read_text()
    table = set(re.findall(r"^\| `(tailrace_[a-z_]+)`", guide, re.MULTILINE))
    assert table == set(known())
