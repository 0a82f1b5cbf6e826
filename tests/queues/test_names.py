"""Names of queues: whatever they are, it is known where each part ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import TailraceError
from tailrace.queues.names import check_client, check_site, parse_receive_queue, receive_queue

NAMES = st.from_regex(r"\A[A-Za-z0-9]([A-Za-z0-9_.-]{0,10}[A-Za-z0-9])?\Z")


@given(NAMES, NAMES)
def test_a_receive_queue_names_its_client_and_source(client: str, source: str) -> None:
    assert parse_receive_queue(receive_queue(client, source)) == (client, source)


def test_names_as_the_seed_has_them() -> None:
    assert receive_queue("inventory", "plant_2") == "LRQ_Recv_inventory_plant_2"
    assert parse_receive_queue("LRQ_Send_LogEntries") is None
    assert parse_receive_queue("LRQ_Recv_inventory") is None


@pytest.mark.parametrize("name", ["", "_a", "a_", "a/b", "a b", "é", "x" * 61])
def test_what_is_no_name(name: str) -> None:
    for check in (check_client, check_site):
        with pytest.raises(TailraceError) as caught:
            check(name)
        assert caught.value.code == "name.invalid"
