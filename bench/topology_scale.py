"""Topologies past the machines that one has: simulations of the real registry, and what the registry itself can take.

`--plots DIR` writes the plots of docs/topology-at-scale.md; `--quick` stops at 2,000 nodes.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
from pathlib import Path

from figures import Figures, seconds
from svg import Line, plot

from tailrace.topology.answers import Offer
from tailrace.topology.databasesql import DatabaseStorage
from tailrace.topology.member import Report, State
from tailrace.topology.registry import Registry
from tailrace.topology.scenario import Outcome, Scenario
from tailrace.topology.simulate import simulate
from tailrace.topology.site import Site

SIZES = (100, 1_000, 10_000, 100_000)
CHURNS = (0.01, 0.1, 0.3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--plots", type=Path)
    arguments = parser.parse_args()
    figures = Figures("topology_scale")
    registering(figures)
    sizes = SIZES[:2] if arguments.quick else SIZES
    by_size = {nodes: _play(figures, f"{nodes} nodes", Scenario(nodes)) for nodes in sizes}
    nodes = 2_000 if arguments.quick else 20_000
    by_churn = {
        churn: _play(figures, f"{nodes} nodes, {churn:.0%} killed", Scenario(nodes, churn=churn)) for churn in CHURNS
    }
    patient = Scenario(nodes, churn=0.01, watch_s=600)
    _play(figures, f"{nodes} nodes, 1% killed, ten minutes to rebalance", patient)
    if not arguments.quick:
        took_s = by_size[SIZES[-1]].took_s
        figures.add("100,000 nodes simulated", took_s, "s", at_most=120)
    if arguments.plots is not None:
        plots(arguments.plots, by_size, by_churn)
    figures.print()


def registering(figures: Figures, nodes: int = 1_000) -> None:
    """Nodes that come one after the other, kept on disk before each answer; then their keepalives."""
    sites = [Site("orders", f"node{number}:4700") for number in range(nodes)]
    with tempfile.TemporaryDirectory() as directory:
        registry = Registry(DatabaseStorage(f"{directory}/registry.db"))
        registry.reset_nodes([Site("orders", "root:4700")], State.ACTIVE)

        def come() -> None:
            for site in sites:
                offer = registry.register_replicant(site)
                assert isinstance(offer, Offer)
                registry.update_registry(site, offer.reserved)

        def keep_alive() -> None:
            for _ in range(20):
                for site in sites:
                    registry.keepalive(site, Report(1, 0, 100, 100))

        figures.add(f"{nodes} nodes registered in SQLite", seconds(come), "s")
        figures.add("keepalives, kept in SQLite", 20 * nodes / seconds(keep_alive), "/s")
        registry.close()


def _play(figures: Figures, name: str, scenario: Scenario) -> Outcome:
    gc.collect()
    found = simulate(scenario)
    figures.add(f"{name}: depth", found.depth_before.most, "tiers")
    figures.add(f"{name}: mean depth", found.depth_before.mean, "tiers")
    figures.add(f"{name}: depth in the end", found.depth_after.most, "tiers")
    figures.add(f"{name}: mean depth in the end", found.depth_after.mean, "tiers")
    figures.add(f"{name}: killed", found.killed, "nodes")
    figures.add(f"{name}: cut off by that", found.cut_off, "nodes")
    figures.add(f"{name}: time to heal", found.heal_s if found.heal_s is not None else -1, "s", at_least=0)
    figures.add(f"{name}: most replicas of any node", found.children_max, "replicas", at_most=scenario.fanout)
    figures.add(f"{name}: calls of the registry", found.calls_per_s_mean, "/s")
    figures.add(f"{name}: calls of the registry, at most", found.calls_per_s_peak, "/s")
    figures.add(f"{name}: refusals", sum(found.refusals.values()), "calls")
    figures.add(f"{name}: sent by the source", found.root_bytes / found.simulated_s / 1e6, "MB/s")
    figures.add(f"{name}: sent by all", found.total_bytes / found.simulated_s / 1e6, "MB/s")
    figures.add(f"{name}: one call takes", found.registry_took_s / sum(found.calls.values()) * 1e6, "µs")
    figures.add(f"{name}: took", found.took_s, "s")
    return found


def plots(directory: Path, by_size: dict[int, Outcome], by_churn: dict[float, Outcome]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    depth: dict[str, Line] = {
        "deepest": [(nodes, found.depth_before.most) for nodes, found in by_size.items()],
        "mean": [(nodes, found.depth_before.mean) for nodes, found in by_size.items()],
    }
    plot(directory / "topology-depth.svg", "How deep the tree is", "replicas", "tier", depth, log_x=True)
    heal: dict[str, Line] = {
        f"{churn:.0%} killed": [
            (second, 100 * cut / (found.nodes - found.killed)) for second, cut in enumerate(_longest(found, by_churn))
        ]
        for churn, found in by_churn.items()
    }
    nodes = next(iter(by_churn.values())).nodes
    title = f"Live replicas that are cut off, of {nodes:,}"
    plot(directory / "topology-heal.svg", title, "seconds after the kill", "%", heal)
    largest = by_size[max(by_size)]
    calls: dict[str, Line] = {"calls": list(enumerate(largest.calls_by_second[:-1]))}
    title = f"Calls of the registry with {largest.nodes:,} replicas"
    plot(directory / "topology-calls.svg", title, "seconds", "per s", calls)


def _longest(found: Outcome, others: dict[float, Outcome]) -> list[int]:
    """As many seconds as the slowest took."""
    seconds_max = max(len(other.cut_off_by_second) for other in others.values())
    cut = list(found.cut_off_by_second)
    return cut + [0] * (seconds_max - len(cut))


if __name__ == "__main__":
    main()
