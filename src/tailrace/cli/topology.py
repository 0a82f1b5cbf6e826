"""`tailrace topology`: replicas in tiers."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.options import JsonOption

if TYPE_CHECKING:
    from tailrace.topology.registryclient import RegistryClient
    from tailrace.topology.scenario import Outcome
    from tailrace.topology.site import Site

app = typer.Typer(help="Look at a topology of replicas.", no_args_is_help=True)

_UNTOLD = ("at_least", "why_off")
RegistryOption = Annotated[
    str, typer.Option("--registry", metavar="HOST:PORT", help="The node that serves the registry.", show_default=False)
]
CaOption = Annotated[str | None, typer.Option("--ca", help="Certificates that sign the registry's own.")]
HostsArgument = Annotated[list[str], typer.Argument(metavar="HOST:PORT…", help="Nodes.", show_default=False)]
DatabaseOption = Annotated[str, typer.Option("--database", help="What the log is called.", show_default=False)]


@app.command()
def tunables(
    registry: Annotated[
        str, typer.Option("--registry", metavar="HOST:PORT", help="Show the values of this registry, not the defaults.")
    ] = "",
    ca: CaOption = None,
    setting: Annotated[str, typer.Option("--set", metavar="NAME=VALUE", help="Change one, for good.")] = "",
    database: Annotated[
        str, typer.Option("--database", help="For this log: its fan-out can differ; an empty one takes that back.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """List what can be set about a topology: the defaults, or the values of a registry."""
    from tailrace.errors import TailraceError
    from tailrace.topology.tunables import TUNABLES

    if (setting or database) and not registry:
        what = "--set and --database need a --registry"
        raise TailraceError("input.invalid", what, hint="name the one to look at or to change")
    if setting:
        name, equals, text = setting.partition("=")
        if not equals:
            raise TailraceError("input.invalid", f"{setting} is not NAME=VALUE", hint="write physrep_fanout=16")
        _client(registry, ca).set_tunable(name.strip(), text.strip(), database)
    values = _client(registry, ca).tuning(database).values if registry else {}
    told = [{**asdict(each), "value": values.get(each.name, each.show(each.default))} for each in TUNABLES.values()]
    if as_json:
        print(json.dumps([{name: value for name, value in row.items() if name not in _UNTOLD} for row in told]))
        return
    width = max(map(len, TUNABLES))
    for row in told:
        value = f"{row['value']} {row['unit']}".strip() or "-"
        print(f"{row['name']:<{width}}  {value:<13}  {row['help']}")


@app.command()
def show(
    registry: RegistryOption,
    ca: CaOption = None,
    *,
    as_json: JsonOption = False,
    as_dot: Annotated[bool, typer.Option("--dot", help="Print it in Graphviz's language.")] = False,
) -> None:
    """Draw the tree: who replicates from whom, how far each is, for whom logs are kept, and who is cut off."""
    from tailrace.cli.show import printable
    from tailrace.topology.drawing import dot, tree
    from tailrace.topology.holders import holders

    rows = _client(registry, ca).topology()
    if as_json:
        held = holders(rows)
        nodes = [{**asdict(row), "held": asdict(held[row.site]) if row.site in held else None} for row in rows]
        print(json.dumps({"nodes": nodes}))
        return
    for line in dot(rows) if as_dot else tree(rows):
        print(printable(line))
    if not rows and not as_dot:
        print("the registry knows no node")


@app.command()
def register(hosts: HostsArgument, registry: RegistryOption, database: DatabaseOption, ca: CaOption = None) -> None:
    """Make nodes sources, at the top of a log's tree."""
    _reset(registry, ca, database, hosts, "Active")
    print(f"{', '.join(hosts)} at the top of {database}")


@app.command()
def reset(hosts: HostsArgument, registry: RegistryOption, database: DatabaseOption, ca: CaOption = None) -> None:
    """Cut nodes off: nobody is sent to them until they register again."""
    _reset(registry, ca, database, hosts, "Inactive")
    print(f"{', '.join(hosts)} cut off")


@app.command()
def start(hosts: HostsArgument, registry: RegistryOption, database: DatabaseOption, ca: CaOption = None) -> None:
    """Let replicas go on that were stopped."""
    _client(registry, ca).start_replication(_sites(database, hosts))
    print(f"{', '.join(hosts)} may replicate; each hears of it with its next keepalive")


@app.command()
def stop(hosts: HostsArgument, registry: RegistryOption, database: DatabaseOption, ca: CaOption = None) -> None:
    """Let replicas stop replicating, until they are started."""
    _client(registry, ca).stop_replication(_sites(database, hosts))
    print(f"{', '.join(hosts)} shall not replicate; each hears of it with its next keepalive")


@app.command()
def rebalance(registry: RegistryOption, database: DatabaseOption, ca: CaOption = None) -> None:
    """Ask one replica to move up, if one would gain by it."""
    move = _client(registry, ca).rebalance(database)
    if move is None:
        print("nobody is asked to move: nobody would gain, or somebody is on its way")
    else:
        print(f"{move.replica.host} moves from tier {move.from_tier} to {move.to_tier}, below {move.source.host}")


@app.command()
def dial(
    replica: Annotated[str, typer.Argument(metavar="REPLICA", help="HOST:PORT of the replica.", show_default=False)],
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="HOST:PORT of its source.", show_default=False)],
    registry: RegistryOption,
    database: DatabaseOption,
    ca: CaOption = None,
    *,
    remove: Annotated[bool, typer.Option("--remove", help="It is dialled no more.")] = False,
) -> None:
    """Let a source dial a replica that cannot connect to it."""
    client = _client(registry, ca)
    (waiting, dialling) = _sites(database, [replica, source])
    if remove:
        client.remove_rule(waiting, dialling)
        print(f"{source} dials {replica} no more")
    else:
        client.add_rule(waiting, dialling)
        print(f"{source} dials {replica}")


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


def _client(registry: str, ca: str | None) -> RegistryClient:
    from tailrace.cli.token import said_token
    from tailrace.relay.address import checked_address
    from tailrace.relay.applier import Source
    from tailrace.relay.pem import read_pem
    from tailrace.topology.registryclient import RegistryClient

    where = f"{'grpc+tls' if ca else 'grpc'}://{checked_address(registry, '--registry')}"
    return RegistryClient(Source("registry", where, said_token(), read_pem(ca)))


def _sites(database: str, hosts: list[str]) -> list[Site]:
    from tailrace.topology.site import Site

    return [Site(database, host) for host in hosts]


def _reset(registry: str, ca: str | None, database: str, hosts: list[str], state: str) -> None:
    from tailrace.topology.member import State

    _client(registry, ca).reset_nodes(_sites(database, hosts), State(state))
