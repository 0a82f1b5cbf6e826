"""What nodes refuse of each other: each with its own code, and nothing of it is applied in part."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from tailrace.errors import TailraceError
from tailrace.limits import MIB
from tailrace.log.batch import Batch, decode_body, encode_frame
from tailrace.log.frame import Codec, crc32
from tailrace.message import Lsn, NodeId
from tailrace.relay import checking, flight, joining, journal
from tailrace.relay.applier import RETRIED, Applier, Source, State
from tailrace.relay.checking import check_rows
from tailrace.relay.flight import Call, RelayServer
from tailrace.relay.request import Ack, Join, Joined, Register, Subscribe, Subscribed
from tailrace.relay.vclock import COMPONENTS_MAX, Vclock
from tailrace.relay.wire import SCHEMA, Unpacker
from tests.node.shops import Shop
from tests.relay.hostile import ID, HostileSource, frame, inflated, raw, sent
from tests.relay.nodes import HEARTBEAT_S, TOKEN, TestNode, wait_for

CLUSTER = str(uuid.UUID(int=7))
PEER = 99
PATIENT_S = 1.0
"""Nobody is taken for gone while a busy machine is slow."""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def node(stack: ExitStack, tmp_path: Path) -> TestNode:
    made = stack.enter_context(TestNode(tmp_path / "node", CLUSTER, heartbeat_s=PATIENT_S))
    made.service.keep_for(PEER, Vclock())
    made.write(1, 2, 3)
    return made


def refusal(asked: TestNode, token: str = TOKEN, /, **changes: Any) -> str:
    """The code of the error that a peer gets to its SUBSCRIBE, if not at once then with the rows."""
    said = {"node": PEER, "cluster": CLUSTER, "vclock": Vclock(), **changes}
    ticket = Subscribe(**said).packed()
    with fl.connect(asked.location) as client:
        try:
            reader = client.do_get(fl.Ticket(ticket), flight.options(token))
            for _ in range(4):
                reader.read_chunk()
            reader.cancel()
        except (fl.FlightError, pa.ArrowException) as error:
            return flight.ours(error).code
    return ""


def called(node: TestNode, call: str, body: bytes, token: str = TOKEN) -> str:
    with fl.connect(node.location) as client:
        try:
            list(client.do_action(fl.Action(call, body), flight.options(token)))
        except (fl.FlightError, pa.ArrowException) as error:
            return flight.ours(error).code
    return ""


class TestPeers:
    """Those who ask a node."""

    def test_another_cluster(self, node: TestNode) -> None:
        assert refusal(node, cluster=str(uuid.uuid4())) == "relay.wrong_cluster"
        register = Register(node=PEER, cluster=str(uuid.uuid4()), vclock=Vclock())
        assert called(node, Call.REGISTER, register.packed()) == "relay.wrong_cluster"

    def test_the_node_itself(self, node: TestNode) -> None:
        assert refusal(node, node=node.id) == "relay.self"
        assert called(node, Call.JOIN, Join(node=node.id).packed()) == "relay.self"

    def test_one_that_follows_already(self, node: TestNode) -> None:
        ticket = Subscribe(node=PEER, cluster=CLUSTER, vclock=Vclock()).packed()
        with fl.connect(node.location) as client:
            reader = client.do_get(fl.Ticket(ticket), flight.options(TOKEN))
            reader.read_chunk()
            assert refusal(node) == "relay.duplicate"
            reader.cancel()

    def test_one_that_nobody_knows(self, node: TestNode) -> None:
        assert refusal(node, node=PEER + 1) == "relay.unknown_replica"
        ack = Ack(node=PEER + 1, session="0" * 16, vclock=Vclock())
        assert called(node, Call.ACK, ack.packed()) == "relay.unknown_replica"

    @pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", TOKEN[:-1]])
    def test_one_without_rights(self, node: TestNode, token: str) -> None:
        assert refusal(node, token) == "relay.no_rights"
        for call in Call:
            if call != Call.VOTE:
                assert called(node, call, b"{}", token) == "relay.no_rights"

    def test_a_node_that_serves_no_log(self, stack: ExitStack, node: TestNode) -> None:
        server = RelayServer(node.service, location="grpc://127.0.0.1:0", tokens={})
        stack.callback(server.stop)
        node.server.stop()
        node.server = server
        assert refusal(node) == "relay.no_log"
        assert called(node, Call.JOIN, Join(node=PEER).packed()) == "relay.no_log"

    def test_a_node_that_is_loading(self, node: TestNode) -> None:
        node.service.is_loading = True
        assert refusal(node) == "relay.loading"
        assert called(node, Call.JOIN, Join(node=PEER).packed()) == "relay.loading"

    def test_a_clock_that_is_ahead(self, node: TestNode) -> None:
        """For the node's own messages: it has lost them. For those of others it is nothing special."""
        assert refusal(node, vclock=Vclock({node.id: Lsn(4)})) == "relay.ahead"
        assert refusal(node, vclock=Vclock({node.id: Lsn(2**63 - 1)})) == "relay.ahead"
        assert refusal(node, vclock=Vclock({node.id: Lsn(3), NodeId(5): Lsn(1000)})) == ""

    def test_the_middle_of_a_transaction(self, node: TestNode) -> None:
        assert refusal(node, vclock=Vclock({node.id: Lsn(2)})) == "relay.inside_transaction"

    def test_a_pattern_that_is_none(self, node: TestNode) -> None:
        assert refusal(node, namespace="(") == "input.invalid"

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"\xff\xfe",
            b"[" * 100_000,
            b'{"node": "18446744073709551616", "session": "00000000deadbeef", "vclock": {}}',
            b'{"node": "99", "session": "00000000deadbeef", "vclock": {"1": -1}}',
            b'{"node": "99", "session": "00000000deadbeef", "vclock": {"1": 9223372036854775808}}',
            b'{"node": "99", "session": "00000000deadbeef", "vclock": {"x": 1}}',
            b'{"node": "99", "session": "00000000deadbeef", "vclock": {}, "more": 1}',
            b'{"node": "99", "session": "00000000deadbeef", "vclock": {'
            + b",".join(b'"%d": 1' % n for n in range(COMPONENTS_MAX + 1))
            + b"}}",
            b'{"node": "99", "session": "00000000deadbeef", "vclock": {}, "x": "' + b"y" * (4 << 20) + b'"}',
        ],
        ids=["empty", "bytes", "deep", "id", "below", "above", "name", "more", "many", "long"],
    )
    def test_lengths_and_values_that_lie(self, node: TestNode, body: bytes) -> None:
        assert called(node, Call.ACK, body) == "relay.malformed"
        assert node.journal.vclock == Vclock({node.id: Lsn(3)})

    def test_an_acknowledgement_of_what_was_not_sent(self, node: TestNode) -> None:
        """It ends the connection, and the log is kept."""
        ticket = Subscribe(node=PEER, cluster=CLUSTER, vclock=Vclock()).packed()
        before = node.service.consumers.position(node.service.consumers.get("relay-0000000000000063"))
        with fl.connect(node.location) as client:
            reader = client.do_get(fl.Ticket(ticket), flight.options(TOKEN))
            said: Any = reader.read_chunk().app_metadata
            answer = Subscribed.read(bytes(said))
            lie = Ack(node=PEER, session=answer.session, vclock=Vclock({node.id: Lsn(1000)}))
            assert called(node, Call.ACK, lie.packed()) == "relay.bad_ack"
            reader.cancel()
        wait_for(lambda: not node.service.following)
        assert node.service.consumers.position(node.service.consumers.get("relay-0000000000000063")) == before


def follower(stack: ExitStack, node: TestNode, source: HostileSource) -> Applier:
    stack.enter_context(source)
    applier = Applier(Source("bad", source.where, TOKEN), node.identity, node.journal, heartbeat_s=HEARTBEAT_S)
    applier.start()
    stack.callback(applier.stop)
    return applier


def error_of(applier: Applier) -> str:
    """What it ends with, or is retried for ever."""
    wait_for(lambda: applier.progress.error is not None)
    error = applier.progress.error
    assert error is not None
    assert applier.progress.state in (RETRIED.get(error.code, State.STOPPED), State.CONNECT, State.READY)
    return error.code


def with_rows(*numbers: int, told_numbers: tuple[int, ...]) -> bytes:
    """A frame whose rows have other numbers than its head says."""
    head, body = frame(*told_numbers)
    rows = decode_body(body)
    at = rows.schema.get_field_index("lsn")
    lied = rows.set_column(at, "lsn", pa.array(numbers, pa.int64()))
    made, forged = encode_frame(Batch("main.t", lied, origin=ID), Codec.NONE)
    return raw((made._replace(first_lsn=head.first_lsn, last_lsn=head.last_lsn), forged))


def nonsense(*, rows: bytes = b"no rows at all, and no Arrow") -> bytes:
    head, _ = frame(1)
    return raw((head._replace(body_crc=crc32(rows), body_bytes=len(rows)), rows))


def renamed(namespace: str) -> Any:
    head, body = frame(1)
    return head._replace(namespace=namespace), body


def nothings(count: int) -> Any:
    """One list of so many nulls, which take no room."""
    offsets = pa.py_buffer(np.array([0, count], np.int64).tobytes())
    return pa.LargeListArray.from_buffers(pa.large_list(pa.null()), 1, [None, offsets], children=[pa.nulls(count)])


OTHER = NodeId(5)
BAD_ROWS: dict[str, tuple[Callable[[], Any], str]] = {
    "a hole in a group": (lambda: [sent(raw(frame(1, 3)))], "relay.bad_group"),
    "a number twice": (lambda: [sent(with_rows(1, 1, 3, told_numbers=(1, 2, 3)))], "relay.bad_group"),
    "other numbers": (lambda: [sent(with_rows(5, 6, told_numbers=(1, 2)))], "relay.bad_group"),
    "not right behind": (lambda: [sent(raw(frame(2, 3)))], "relay.gap"),
    "inside": (lambda: [sent(raw(frame(1, 2))), sent(raw(frame(2, 3)))], "relay.inside_transaction"),
    "of nobody": (lambda: [sent(raw(frame(1, origin=NodeId(0))))], "relay.malformed"),
    "another node's transaction in between": (
        lambda: [sent(raw(frame(1), closes=False)), sent(raw(frame(1, origin=OTHER)))],
        "relay.interleaved",
    ),
    "another transaction in between": (
        lambda: [sent(raw(frame(1), closes=False), raw(frame(7, 8)))],
        "relay.bad_group",
    ),
    "a frame that is too short": (lambda: [sent(raw(frame(1))[:-1])], "relay.malformed"),
    "a frame that is too long": (lambda: [sent(raw(frame(1)) + b"x")], "relay.malformed"),
    "a length of gigabytes": (
        lambda: [sent(raw(frame(1))[:8] + struct.pack(">I", 0xFFFFFFF0) + raw(frame(1))[12:])],
        "relay.malformed",
    ),
    "no rows": (lambda: [sent(nonsense())], "relay.malformed"),
    "a namespace of ours": (lambda: [sent(raw(frame(1, namespace="_tailrace.position")))], "relay.malformed"),
    "a namespace that is a path": (lambda: [sent(raw(renamed("/etc/x")))], "relay.malformed"),
    "values that are kept once": (
        lambda: [sent(raw(inflated(pa.array(["x"]).dictionary_encode())))],
        "relay.malformed",
    ),
    "other words": (lambda: [(sent(), pa.py_buffer(b'{"vclock": {"1": -5}}'))], "relay.malformed"),
}


class TestSources:
    """Those whom a node asks."""

    @pytest.fixture
    def reader(self, stack: ExitStack, tmp_path: Path) -> TestNode:
        return stack.enter_context(TestNode(tmp_path / "reader", CLUSTER))

    @pytest.mark.parametrize("what", BAD_ROWS)
    def test_rows(self, stack: ExitStack, reader: TestNode, what: str) -> None:
        rows, code = BAD_ROWS[what]
        applier = follower(stack, reader, HostileSource(CLUSTER, rows))
        assert error_of(applier) == code
        kept = {(m.origin, m.lsn) for m in reader.messages()}
        assert kept == ({(ID, 1), (ID, 2)} if what == "inside" else set())
        assert reader.journal.vclock == (Vclock({ID: Lsn(2)}) if what == "inside" else Vclock())

    def test_half_a_transaction_and_then_nothing(self, stack: ExitStack, reader: TestNode) -> None:
        source = HostileSource(CLUSTER)

        def half() -> Iterator[Any]:
            yield sent(raw(frame(1), closes=False))
            wait_for(lambda: source.is_over)

        source._rows = half
        applier = follower(stack, reader, source)
        assert error_of(applier) == "relay.unreachable"
        assert reader.messages() == []
        source.is_over = True

    def test_a_few_bytes_that_claim_to_be_many(
        self, stack: ExitStack, reader: TestNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They are refused before they are unpacked."""
        bomb = inflated(pa.array(["x" * 8 * MIB]))
        monkeypatch.setattr(checking, "FRAME_UNPACKED_BYTES_MAX", 4 * MIB)
        monkeypatch.setattr(checking, "decode_body", lambda _: pytest.fail("it was unpacked"))
        assert len(raw(bomb)) < 100_000
        assert error_of(follower(stack, reader, HostileSource(CLUSTER, lambda: [sent(raw(bomb))]))) == "relay.malformed"
        assert reader.messages() == []

    def test_values_that_need_no_room(self) -> None:
        with pytest.raises(TailraceError) as caught:
            check_rows([inflated(nothings(1 << 30))])
        assert caught.value.code == "relay.malformed"

    def test_what_others_would_refuse_is_refused_at_home(
        self, reader: TestNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(journal, "FRAME_UNPACKED_BYTES_MAX", 100_000)
        head, body = inflated(pa.array(["x" * 200_000]))
        with pytest.raises(TailraceError) as caught:
            reader.journal.append_local([Batch(head.namespace, decode_body(body))])
        assert caught.value.code == "log.frame_too_long"
        assert reader.messages() == []

    def test_another_cluster(self, stack: ExitStack, reader: TestNode) -> None:
        assert error_of(follower(stack, reader, HostileSource(str(uuid.uuid4())))) == "relay.wrong_cluster"

    def test_a_copy_of_the_node(self, stack: ExitStack, reader: TestNode) -> None:
        """Its directory was copied, and both run. It is not the node itself, which would be no mistake."""
        copy = HostileSource(CLUSTER, ballot={"node": reader.id, "run": "0123456789abcdef"})
        assert error_of(follower(stack, reader, copy)) == "relay.duplicate"

    def test_columns_that_lie_about_their_lengths(self) -> None:
        offsets = pa.py_buffer(np.array([0, 2**30, 5], np.int32).tobytes())
        forged: Any = pa.BinaryArray.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"short")])
        with pytest.raises(TailraceError) as caught:
            list(Unpacker().groups(pa.RecordBatch.from_arrays([forged], schema=SCHEMA)))
        assert caught.value.code == "relay.malformed"

    def test_rows_that_lie_about_their_lengths(self) -> None:
        """Inside a frame whose checksums are right."""
        head, body = frame(1)
        at = bytes(body).rindex(b"?")  # the word: its length stands before it
        for end in range(at - 200, at):
            forged = bytearray(bytes(body))
            forged[end : end + 4] = struct.pack("<i", 2**30)
            try:
                check_rows([(head._replace(body_crc=crc32(bytes(forged))), bytes(forged))])
            except TailraceError as error:
                assert error.code in ("relay.malformed", "relay.bad_group")


def packed_chunk(*frames: bytes) -> Callable[[], list[pa.RecordBatch]]:
    return lambda: [sent(*frames)]


class TestJoins:
    """Sources through which a newcomer joins."""

    @pytest.fixture
    def newcomer(self, stack: ExitStack, tmp_path: Path) -> Shop:
        return stack.enter_context(Shop(tmp_path / "newcomer", None))

    def check(self, stack: ExitStack, newcomer: Shop, source: HostileSource, *codes: str) -> None:
        stack.enter_context(source)
        applier = newcomer.join(Bad(source.where))  # type: ignore[arg-type]
        assert error_of(applier) in codes
        assert newcomer.rows() == []
        assert not newcomer.journal.vclock
        assert newcomer.identity.cluster is None
        applier.stop()

    def test_chunks_without_end(self, stack: ExitStack, newcomer: Shop) -> None:
        joined = Joined(session="0" * 16, vclock=Vclock(), chunks=10**12)
        self.check(stack, newcomer, HostileSource(CLUSTER, joined=joined), "relay.endless_join")

    def test_a_chunk_without_end(self, stack: ExitStack, newcomer: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(joining, "CHUNK_BYTES_MAX", 100_000)
        source = HostileSource(CLUSTER)

        def endless() -> Iterator[Any]:
            while not source.is_over:
                yield sent(raw(frame(*range(1, 100))))

        source._chunk = endless
        self.check(stack, newcomer, source, "relay.endless_join")

    def test_batches_without_rows(self, stack: ExitStack, newcomer: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(joining, "SILENCE_S", 0.5)
        source = HostileSource(CLUSTER)

        def empty() -> Iterator[Any]:
            while not source.is_over:
                yield sent()

        source._chunk = empty
        self.check(stack, newcomer, source, "relay.endless_join")

    def test_silence(self, stack: ExitStack, newcomer: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is tried again."""
        monkeypatch.setattr(joining, "SILENCE_S", 0.3)
        source = HostileSource(CLUSTER)

        def silent() -> Iterator[Any]:
            wait_for(lambda: source.is_over)
            yield sent()

        source._chunk = silent
        self.check(stack, newcomer, source, "relay.unreachable")

    @pytest.mark.parametrize(
        "chunk",
        [
            packed_chunk(nonsense()),
            packed_chunk(raw(frame(1)), nonsense()),
            packed_chunk(raw(frame(1)), raw(frame(2))[:-3]),
            packed_chunk(raw(frame(1)), raw(frame(2), closes=False)),
            packed_chunk(raw(frame(1, namespace="_tailrace.position"))),
        ],
        ids=["nonsense", "rows and nonsense", "cut", "without an end", "a namespace of ours"],
    )
    def test_rows_that_are_none(self, stack: ExitStack, newcomer: Shop, chunk: Any) -> None:
        self.check(stack, newcomer, HostileSource(CLUSTER, chunk=chunk), "relay.malformed")

    def test_messages_that_were_promised(self, stack: ExitStack, newcomer: Shop) -> None:
        """What came of the view is no harm; the node has not joined, and begins again."""
        joined = Joined(session="0" * 16, vclock=Vclock(), chunks=1)
        source = HostileSource(CLUSTER, joined=joined, final=lambda: [sent(raw(frame(1, 3)))])
        stack.enter_context(source)
        applier = newcomer.join(Bad(source.where))  # type: ignore[arg-type]
        assert error_of(applier) == "relay.bad_group"
        assert newcomer.identity.cluster is None
        assert not newcomer.journal.vclock


class Bad:
    """Where a hostile source is."""

    def __init__(self, location: str) -> None:
        self.location = location
