"""A site in a process of its own that sends numbered messages until it is told to stop, or killed."""

from __future__ import annotations

import os
import sys
import threading
from itertools import count

from pydantic import SecretStr

from tailrace.queues.entries import Outgoing
from tailrace.queues.form import ClientForm, DestinationForm, QueuesForm
from tailrace.queues.site import Site

CLIENT, SOURCE, SINK = "inventory", "plant", "office"
RUN = "import sys; from tests.queues.sender import send; send(*sys.argv[1:])"


def send(directory: str, port: str, token: str) -> None:
    """A message's number is its queue id, so whoever goes on after a kill knows which is next. Prints where its log
    ends: first as it was found, then behind each transaction, at last after the word `end`. Small segments are
    removed while it goes on."""
    form = QueuesForm(
        clients={CLIENT: ClientForm(snapshots=False)},
        destinations={SINK: DestinationForm(address=f"127.0.0.1:{port}", token=SecretStr(token))},
        segment_bytes=50_000,
        every=0.3,
    )
    os.makedirs(directory, exist_ok=True)
    told = threading.Event()
    threading.Thread(target=_listen, args=(told,), daemon=True).start()
    with Site(form, SOURCE, directory, _ignore) as site:
        for transaction in count():
            first = site.log.next_offset
            say(str(first))
            if told.wait(0.002):
                break
            numbers = range(first, first + 1 + transaction % 5)
            site.transmit([Outgoing(CLIENT, str(number).encode(), (SINK,)) for number in numbers])
        say("end")
        say(str(site.log.next_offset))
        threading.Event().wait()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _ignore(_text: str) -> None:
    """Whoever was killed before is told of by its successor."""


def _listen(told: threading.Event) -> None:
    sys.stdin.readline()
    told.set()
