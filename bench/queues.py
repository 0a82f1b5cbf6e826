"""What routing queues cost: a payload for many, a session among many, and messages end to end against RabbitMQ.

Every site is a process of its own. `--quick` takes about a minute; `--only` names parts.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import rabbitmq
from figures import Figures
from peers import peer
from pydantic import SecretStr

from tailrace.log.batch import decode_body
from tailrace.log.commitlog import CommitLog
from tailrace.message import now
from tailrace.queues.entries import Outgoing, outgoing_batches, shipped_rows
from tailrace.queues.form import ClientForm, DestinationForm, QueuesForm
from tailrace.queues.guest import QueueGuest
from tailrace.queues.names import client_tag, entry_tag
from tailrace.queues.receiving import Receiver
from tailrace.queues.session import State
from tailrace.queues.site import Site
from tailrace.queues.tags import Tags
from tailrace.topology.serving import GuestServer

CLIENT, SOURCE = "inventory", "plant"
TOKEN = "a token of this bench"
SPAWN = multiprocessing.get_context("spawn")
DESTINATIONS = 8
PAYLOAD_BYTES = 1_000
PER_TRANSACTION = 100


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    messages: int
    rounds: int
    samples: int
    shares: int
    """How many messages each of a thousand destinations gets."""


FULL = Size(messages=100_000, rounds=3, samples=500, shares=40)
QUICK = Size(messages=20_000, rounds=1, samples=100, shares=10)


def main() -> None:
    jobs: dict[str, Callable[[Figures, Path, Size], None]] = {
        "fan_out": fan_out,
        "share": share,
        "latency": latency,
        "end_to_end": end_to_end,
    }
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=list(jobs), default=list(jobs))
    options = parser.parse_args()
    figures = Figures("queues")
    for name in options.only:
        with tempfile.TemporaryDirectory(prefix="tailrace-queues-") as place:
            jobs[name](figures, Path(place), QUICK if options.quick else FULL)
    figures.print()


# One payload for many destinations.


def fan_out(figures: Figures, place: Path, _: Size) -> None:
    """What a log has grown by when it is sealed, its indexes counted."""
    payload = os.urandom(1_000_000)
    sizes, cpus = {}, {}
    for count in (1, 10, 100, 1_000):
        log = place / str(count)
        sites = tuple(site_name(number) for number in range(count))
        with CommitLog.open(log) as made:
            empty = bytes_of(log)
            before = time.process_time()
            append(made, [Outgoing(CLIENT, payload, sites)])
            cpus[count] = time.process_time() - before
            made.roll()
        sizes[count] = bytes_of(log) - empty - len(payload)
        unit = f"bytes of log beyond the payload for each of {count} destinations"
        figures.add(f"fan_out_{count}", sizes[count] / count, unit)
    further = (sizes[1_000] - sizes[1]) / 999
    figures.add("fan_out_further", further, "bytes of log for each further destination, 1 to 1,000", at_most=100)
    cpu_us = 1e6 * (cpus[1_000] - cpus[10]) / 990
    figures.add("fan_out_cpu", cpu_us, "us of CPU for each further destination, 10 to 1,000")


# One destination among a thousand.


def share(figures: Figures, place: Path, size: Size) -> None:
    """What a session reads of the log's segments: for one of a thousand destinations, and when it is alone there.
    Frames of one message of 1 kB, and of twenty."""
    for kind, per_frame in (("small", 1), ("large", 20)):
        many, alone = place / f"{kind}-many", place / f"{kind}-alone"
        for log, destinations in ((many, 1_000), (alone, 1)):
            with CommitLog.open(log) as made:
                fill(made, destinations, max(1, size.shares // per_frame), per_frame)
        taken = {log: answer_of(read_share, str(log)) for log in (many, alone)}
        own = taken[many]["frames"]
        against = f"x what it reads of a log with nothing else in it, {kind} frames; it reads"
        ratio = taken[many]["segments"] / taken[alone]["segments"]
        figures.add(f"share_{kind}", ratio, f"{against} {taken[many]['segments']:,} bytes", at_most=1.1)
        beyond = taken[many]["segments"] / own
        figures.add(f"share_{kind}_exact", beyond, "x the bytes of its own frames", at_most=1.1)
        unit = f"bytes of indexes, {taken[alone]['indexes']:,} when it is alone; once for all sessions"
        figures.add(f"share_{kind}_indexes", taken[many]["indexes"], unit)


def fill(log: CommitLog, destinations: int, shares: int, per_frame: int) -> None:
    """Every destination gets as many frames."""
    for _ in range(shares):
        for number in range(destinations):
            payloads = [os.urandom(PAYLOAD_BYTES) for _ in range(per_frame)]
            append(log, [Outgoing(CLIENT, payload, (site_name(number),)) for payload in payloads])
    log.sync()
    log.roll()


def read_share(log: str, pipe: Any) -> None:
    """Bytes as the operating system counts them. Who reads a second time has the indexes in memory."""
    take_share(Tags(log))  # and all modules
    tags, counts = Tags(log), [bytes_read()]
    for _ in range(2):
        frames = take_share(tags)
        counts.append(bytes_read())
    whole, segments = counts[1] - counts[0], counts[2] - counts[1]
    pipe.send({"frames": frames, "segments": segments, "indexes": whole - segments})


def take_share(tags: Tags) -> int:
    """As a session reads; says how many bytes its frames have."""
    size = 0
    for frame in tags.frames(entry_tag(site_name(0)), client_tag(CLIENT), 0, tags.end):
        shipped_rows(decode_body(frame.body()))
        size += frame.head.frame_bytes
    return size


def bytes_read() -> int:
    with open("/proc/self/io", encoding="ascii") as stream:
        return int(stream.readline().split()[1])


# How long one message takes.


def latency(figures: Figures, place: Path, size: Size) -> None:
    """From the application's call until a consumer at the sink has the message. One at a time."""
    delays_s = []
    with ExitStack() as stack:
        pipe, port = stack.enter_context(sink(place, 0))
        site = stack.enter_context(sending_site(place, [port]))
        for number in range(size.samples):
            pipe.send(1)
            began = time.monotonic()
            site.transmit([Outgoing(CLIENT, b"%d" % number, (site_name(0),))])
            delays_s.append(pipe.recv()[0] - began)
    delays_s.sort()
    figures.add("message_p50", 1000 * statistics.median(delays_s), "ms from the call until a consumer has it")
    figures.add("message_p99", 1000 * delays_s[int(len(delays_s) * 0.99)], "ms")


# From the application's call to the consumers' acknowledgement.


def end_to_end(figures: Figures, place: Path, size: Size) -> None:
    """As many messages to eight sites as to eight queues, in turn."""
    taken_s: dict[str, list[float]] = {"ours": [], "theirs": []}
    with ExitStack() as stack:
        turns: dict[str, Callable[[], float]] = {"ours": lambda: deliver(place / "ours", size.messages)}
        if rabbitmq.is_installed():
            programs = stack.enter_context(peer(rabbitmq.CLIENT))
            port = stack.enter_context(rabbitmq.broker(place / "rabbitmq"))
            turns["theirs"] = lambda: rabbitmq.deliver(programs, port, size.messages, PAYLOAD_BYTES, DESTINATIONS)
        for _ in range(size.rounds):
            for name, turn in turns.items():
                taken_s[name].append(turn())
                print(f"{name}: {taken_s[name][-1]:.1f} s", file=sys.stderr)
    deliveries = size.messages * DESTINATIONS
    what = f"deliveries/s, {size.messages} messages of 1 kB to {DESTINATIONS} sites"
    figures.add("end_to_end", deliveries / statistics.median(taken_s["ours"]), what)
    if "theirs" not in turns:
        print("there is no RabbitMQ here, so nothing to compare with: install rabbitmq-server", file=sys.stderr)
        return
    figures.add("end_to_end_rabbitmq", deliveries / statistics.median(taken_s["theirs"]), "deliveries/s of RabbitMQ")
    ratio = statistics.median(theirs / ours for ours, theirs in zip(*taken_s.values(), strict=True))
    figures.add("end_to_end_ratio", ratio, "x as fast as RabbitMQ", at_least=1)


def deliver(place: Path, messages: int) -> float:
    """Seconds from the first call until every application has acknowledged everything, on disk. The sender is a
    process, and so is each sink and each application: 17, where RabbitMQ has a broker, a publisher and 8 consumers."""
    with ExitStack() as stack:
        sinks = [stack.enter_context(sink(place, number)) for number in range(DESTINATIONS)]
        ports = [port for _, port in sinks]
        sending = stack.enter_context(process(run_sender, str(place), ports, messages))
        sending.recv()
        began = time.monotonic()
        sending.send("go")
        for pipe, _ in sinks:
            pipe.send(messages)
        for pipe, _ in sinks:
            pipe.recv()
        taken_s = time.monotonic() - began
        sending.send("end")
    shutil.rmtree(place)
    return taken_s


# Sites.


def run_sender(place: str, ports: list[int], messages: int, pipe: Any) -> None:
    payloads = [os.urandom(PAYLOAD_BYTES) for _ in range(PER_TRANSACTION)]
    sites = tuple(site_name(number) for number in range(len(ports)))
    with sending_site(Path(place), ports) as site:
        pipe.send("ready")
        pipe.recv()
        for _ in range(messages // PER_TRANSACTION):
            site.transmit([Outgoing(CLIENT, payload, sites) for payload in payloads])
        pipe.recv()


@contextmanager
def sending_site(place: Path, ports: list[int]) -> Iterator[Site]:
    """Its sessions are ready when this goes on."""
    form = QueuesForm(
        clients={CLIENT: ClientForm(snapshots=False)},
        destinations={
            site_name(number): DestinationForm(address=f"127.0.0.1:{port}", token=SecretStr(TOKEN))
            for number, port in enumerate(ports)
        },
    )
    (place / SOURCE).mkdir(parents=True)
    with Site(form, SOURCE, str(place / SOURCE), say) as site:
        while any(session.progress.state is not State.ENTRIES for session in site.sessions.values()):
            time.sleep(0.01)
        yield site


def run_sink(place: str, name: str, pipe: Any) -> None:
    with (
        Site(QueuesForm(), name, place, say) as site,
        GuestServer([QueueGuest(site.sink)], location="grpc://127.0.0.1:0", tokens={SOURCE: TOKEN}) as server,
    ):
        pipe.send((site.directory, server.port))
        pipe.recv()
        server.stop()


def run_application(log: str, pipe: Any) -> None:
    """Whenever it gets a number it takes and acknowledges so many messages, one by one; says when it had the last one,
    and when it had ended so that none of them comes again."""
    receiver = Receiver(log, CLIENT)
    receiver.register()
    pipe.send("ready")
    while (wanted := pipe.recv()) != "end":
        with contextlib.closing(receiver.messages()) as messages:
            for message in islice(messages, wanted):
                message.ack()
            had_s = time.monotonic()
        pipe.send((had_s, time.monotonic()))


@contextmanager
def sink(place: Path, number: int) -> Iterator[tuple[Any, int]]:
    """A site and an application that receives there, each a process; gives the pipe to the latter, and the port."""
    directory = place / site_name(number)
    directory.mkdir(parents=True)
    with process(run_sink, str(directory), site_name(number)) as site:
        log, port = site.recv()
        with process(run_application, log) as application:
            application.recv()
            yield application, port
            application.send("end")
        site.send("end")


@contextmanager
def process(work: Callable[..., None], *arguments: object) -> Iterator[Any]:
    """A process that is ours to end; gives the pipe to it."""
    here, there = SPAWN.Pipe()
    started = SPAWN.Process(target=work, args=(*arguments, there))
    started.start()
    try:
        yield here
        started.join(60)
    finally:
        if started.is_alive():
            started.kill()


def answer_of(work: Callable[..., None], *arguments: object) -> Any:
    """What a process of its own says."""
    with process(work, *arguments) as pipe:
        return pipe.recv()


def site_name(number: int) -> str:
    return f"site-{number:04d}"


def append(log: CommitLog, entries: list[Outgoing]) -> None:
    with log.group(waits=False) as group:
        for batch in outgoing_batches([("transaction", entries)], log.next_offset, now()):
            group.add(batch)


def bytes_of(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.iterdir() if file.is_file())


def say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
