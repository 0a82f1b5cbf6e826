"""`tailrace topology`: replicas in tiers."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.options import JsonOption

if TYPE_CHECKING:
    from tailrace.topology.scenario import Outcome

app = typer.Typer(help="Look at a topology of replicas.", no_args_is_help=True)


@app.command()
def tunables(as_json: JsonOption = False) -> None:
    """List what can be set about a topology, with the defaults."""
    from tailrace.topology.tunables import TUNABLES

    if as_json:
        told = [asdict(tunable) for tunable in TUNABLES.values()]
        print(json.dumps([{name: value for name, value in row.items() if name != "at_least"} for row in told]))
        return
    width = max(map(len, TUNABLES))
    for tunable in TUNABLES.values():
        value = f"{tunable.show(tunable.default)} {tunable.unit}".strip() or "-"
        print(f"{tunable.name:<{width}}  {value:<13}  {tunable.help}")


@app.command()
def simulate(
    *,
    nodes: Annotated[int, typer.Option(min=1, help="Replicas.")] = 1000,
    fanout: Annotated[int, typer.Option(min=1, help="Replicas that a node serves at most.")] = 8,
    churn: Annotated[float, typer.Option(min=0, max=0.99, help="The part of the replicas that end at once.")] = 0.1,
    seed: Annotated[int, typer.Option(help="The same seed gives the same outcome.")] = 0,
    arrive: Annotated[str, typer.Option(help="All replicas come within this time.")] = "60s",
    settle: Annotated[str, typer.Option(help="From the last arrival until some of them end.")] = "60s",
    notice: Annotated[str, typer.Option(help="Within this time a replica notices that its source ended.")] = "5s",
    watch: Annotated[str, typer.Option(help="How long it is watched after it has healed.")] = "60s",
    write_rate: Annotated[str, typer.Option(help="How much is written to the log in a second.")] = "1MB",
    as_json: JsonOption = False,
) -> None:
    """Run the real registry on a simulated clock and network, kill some of the nodes, and tell how it went."""
    from tailrace.topology.scenario import Scenario
    from tailrace.topology.simulate import simulate as play
    from tailrace.units import parse_bytes, parse_seconds

    scenario = Scenario(
        nodes=nodes,
        fanout=fanout,
        churn=churn,
        seed=seed,
        arrive_s=parse_seconds(arrive),
        settle_s=parse_seconds(settle),
        notice_s=parse_seconds(notice),
        watch_s=parse_seconds(watch),
        write_bytes_s=parse_bytes(write_rate),
    )
    outcome = play(scenario)
    if as_json:
        print(json.dumps(asdict(outcome)))
        return
    for line in _lines(outcome):
        print(line)


def _lines(found: Outcome) -> list[str]:
    from tailrace.units import show_bytes

    healed = "not healed" if found.heal_s is None else f"healed after {found.heal_s:.1f} s"
    settled = "not all had a source" if found.settled_s is None else f"all had a source {found.settled_s:.1f} s later"
    refusals = ", ".join(f"{count} {reason}" for reason, count in found.refusals.items()) or "none"
    tiers = ", ".join(f"{tier}: {count}" for tier, count in found.depth_after.counts.items())
    calls = ", ".join(f"{count} {name}" for name, count in found.calls.items())
    return [
        f"{found.nodes} replicas with a fan-out of {found.fanout}; when the last had come, {settled}",
        f"  depth {found.depth_before.most}, mean {found.depth_before.mean:.2f}",
        f"{found.killed} were killed at once, which cut {found.cut_off} others off: {healed}",
        f"  depth {found.depth_after.most}, mean {found.depth_after.mean:.2f} (replicas by tier: {tiers})",
        f"  replicas of a node that has any: mean {found.load_after.mean:.2f}, most {found.load_after.most}; "
        f"the most that any node ever had: {found.children_max}",
        f"  moves to a shallower tier: {found.moves}; refusals: {refusals}",
        f"registry: {found.calls_per_s_mean:.0f} calls a second, at most {found.calls_per_s_peak} ({calls})",
        f"sent by the source: {show_bytes(found.root_bytes)}, by all: {show_bytes(found.total_bytes)}",
        f"{found.simulated_s:.0f} s were simulated in {found.took_s:.1f} s, "
        f"{found.registry_took_s:.1f} s of them in the registry",
    ]
