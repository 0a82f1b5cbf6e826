"""RabbitMQ as a peer: a private broker on loopback, and clients in an environment of their own.

Topic exchange, durable queues, persistent messages. The publisher has its confirms while it goes on, up to a window;
consumers prefetch and acknowledge many at once. Each of them is a process.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

CLIENT = "pika==1.4.4"
SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""Debian's, without the wrapper that wants to be the user `rabbitmq`."""
START_S = 120.0

PUBLISH = """
import os, pika, sys, time
port, count, size, window = map(int, sys.argv[1:5])
bodies = [os.urandom(size) for _ in range(100)]
persistent = pika.BasicProperties(delivery_mode=2)

class Publisher:
    sent = confirmed = 0

    def __init__(self):
        parameters = pika.ConnectionParameters("127.0.0.1", port)
        self.connection = pika.SelectConnection(parameters, on_open_callback=self.opened)

    def opened(self, connection):
        connection.channel(on_open_callback=self.ready)

    def ready(self, channel):
        self.channel = channel
        channel.confirm_delivery(self.answered, callback=self.begin)

    def begin(self, _):
        print("ready", flush=True)
        sys.stdin.readline()
        self.publish()

    def publish(self):
        while self.sent < count and self.sent - self.confirmed < window:
            self.channel.basic_publish("bench", "inventory.all", bodies[self.sent % 100], persistent)
            self.sent += 1

    def answered(self, frame):
        if isinstance(frame.method, pika.spec.Basic.Nack):
            sys.exit("refused")
        self.confirmed = frame.method.delivery_tag if frame.method.multiple else self.confirmed + 1
        if self.confirmed >= count:
            print("done", flush=True)
            os._exit(0)
        if self.sent - self.confirmed <= window // 2:
            self.publish()

Publisher().connection.ioloop.start()
"""

CONSUME = """
import pika, sys
port, count, prefetch = map(int, sys.argv[1:4])
queue = sys.argv[4]

class Consumer:
    seen = 0

    def __init__(self):
        parameters = pika.ConnectionParameters("127.0.0.1", port)
        self.connection = pika.SelectConnection(parameters, on_open_callback=self.opened)

    def opened(self, connection):
        connection.channel(on_open_callback=self.ready)

    def ready(self, channel):
        self.channel = channel
        channel.basic_qos(prefetch_count=prefetch, callback=lambda _: channel.basic_consume(
            queue, self.took, callback=lambda _: print("ready", flush=True)))

    def took(self, channel, method, properties, body):
        self.seen += 1
        if self.seen == count or self.seen % (prefetch // 4) == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if self.seen == count:
            self.connection.add_on_close_callback(lambda *_: self.connection.ioloop.stop())
            self.connection.close()

consumer = Consumer()
consumer.connection.ioloop.start()
print("done", flush=True)
"""

DECLARE = """
import pika, sys
with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", int(sys.argv[1]))) as connection:
    channel = connection.channel()
    channel.exchange_declare("bench", "topic", durable=True)
    for queue in sys.argv[2:]:
        channel.queue_delete(queue)
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "bench", "inventory.*")
"""


def is_installed() -> bool:
    """After an attempt to install it."""
    if not os.path.exists(SERVER):
        subprocess.run(["scripts/apt-install.sh", "rabbitmq-server"], check=False)
    return os.path.exists(SERVER) and shutil.which("erl") is not None


@contextmanager
def broker(place: Path) -> Iterator[int]:
    """A broker with everything that it writes in a directory; gives its port."""
    place.mkdir()
    port, epmd_port, distribution_port = (_free_port() for _ in range(3))
    loopback = "-kernel inet_dist_use_interface {127,0,0,1}"
    (place / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\nlog.file.level = error\n")
    environment = {
        **os.environ,
        "HOME": str(place),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(epmd_port),
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution_port),
        "RABBITMQ_CONFIG_FILE": str(place / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": str(place / "none.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(place / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(place / "mnesia"),
        "RABBITMQ_LOG_BASE": str(place / "log"),
        "RABBITMQ_PID_FILE": str(place / "pid"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": loopback,
    }
    with ExitStack() as stack:
        talk = stack.enter_context(open(place / "talk", "wb"))
        daemon = subprocess.Popen(["epmd", "-port", str(epmd_port)], env=environment, stdout=talk, stderr=talk)
        stack.callback(_end, daemon)
        started = subprocess.Popen(
            [SERVER], env=environment, stdin=subprocess.DEVNULL, stdout=talk, stderr=talk, cwd=place
        )
        stack.callback(_end, started)
        ends_s = time.monotonic() + START_S
        while not _listens(port):
            if started.poll() is not None or time.monotonic() > ends_s:
                raise SystemExit((place / "talk").read_text()[-2000:])
            time.sleep(0.2)
        yield port


def deliver(programs: Path, port: int, count: int, size: int, queues: int, window: int = 2_000) -> float:
    """Seconds from the first publication until every consumer has acknowledged everything."""
    python, names = str(programs / "python"), [f"inventory-{number}" for number in range(queues)]
    subprocess.run([python, "-c", DECLARE, str(port), *names], check=True)
    with ExitStack() as stack:
        consumers = [
            stack.enter_context(_process(python, CONSUME, str(port), str(count), str(window), name)) for name in names
        ]
        publisher = stack.enter_context(_process(python, PUBLISH, str(port), str(count), str(size), str(window)))
        for process in (*consumers, publisher):
            _says(process, "ready")
        began = time.monotonic()
        publisher.stdin.write("go\n")  # type: ignore[union-attr]
        publisher.stdin.flush()  # type: ignore[union-attr]
        for process in (publisher, *consumers):
            _says(process, "done")
        return time.monotonic() - began


@contextmanager
def _process(python: str, program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [python, "-c", program, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _says(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    if process.stdout.readline().strip() != word:
        raise SystemExit(f"a client of RabbitMQ did not say {word!r}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    sys.exit("this is what bench/queues.py is compared with")
