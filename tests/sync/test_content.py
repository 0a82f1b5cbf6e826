"""What requests and answers carry: nothing takes more room or time than its length allows."""

from __future__ import annotations

import gzip

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import TailraceError
from tailrace.limits import MIB, SYNC_BODY_BYTES_MAX, SYNC_DEPTH_MAX, SYNC_VALUES_MAX
from tailrace.sync import content as module
from tailrace.sync.content import pack, read_json, read_value, read_values, unpack
from tests.sync.peak import peak_bytes


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def test_how_deep_and_how_many() -> None:
    assert read_json(nested(SYNC_DEPTH_MAX))
    with pytest.raises(TailraceError):
        read_json(nested(SYNC_DEPTH_MAX + 1))
    commas = orjson.dumps([{"what": ',[{"\\' * SYNC_VALUES_MAX}])
    assert read_json(commas) == [{"what": ',[{"\\' * SYNC_VALUES_MAX}]


def test_a_bomb_takes_no_more_than_it_may() -> None:
    bomb = gzip.compress(b"\0" * (SYNC_BODY_BYTES_MAX * 4), 9)
    with pytest.raises(TailraceError) as caught:
        unpack(bomb)
    assert caught.value.code == "sync.too_large"
    assert unpack(gzip.compress(b"x" * SYNC_BODY_BYTES_MAX, 1)) == b"x" * SYNC_BODY_BYTES_MAX


def test_what_is_packed_comes_back() -> None:
    content = b"sweep" * 1000
    packed = pack(content)
    assert packed is not None
    assert unpack(packed) == content
    assert pack(b"short") is None


HOSTILE = {
    "objects": b"[" + b"{}," * (20 * MIB) + b"{}]",
    "a text with everything that counts": b'["' + b",[{" * (20 * MIB) + b'"]',
    "a text of quotes that does not end": b"[" * (SYNC_VALUES_MAX + 1) + b'"' + rb"\"" * (20 * MIB),
    "texts of nothing": b'["",' + b'"",' * (15 * MIB) + b"1]",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_hostile_takes_little_room(what: str) -> None:
    content = HOSTILE[what]

    def read() -> None:
        if what.startswith("a text with"):
            assert len(read_value(content)[0]) == len(content) - 4
            return
        with pytest.raises(TailraceError) as caught:
            read_value(content)
        assert caught.value.code in ("sync.too_large", "sync.malformed")

    assert peak_bytes(read) < 14 * SYNC_BODY_BYTES_MAX, "orjson reserves 12 times what it reads, and uses little of it"


@given(
    st.recursive(st.text(st.sampled_from('",[{\\a')), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
def test_only_what_is_outside_texts_counts(told: object) -> None:
    def brackets_and_commas(value: object) -> int:
        if isinstance(value, list):
            return 1 + max(0, len(value) - 1) + sum(map(brackets_and_commas, value))
        if isinstance(value, dict):
            return 1 + max(0, len(value) - 1) + sum(map(brackets_and_commas, value.values()))
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MIB", 3)
        assert module._count_outside_texts(orjson.dumps(told)) == brackets_and_commas(told)


def test_texts_of_json_have_their_limits_together() -> None:
    assert read_values(["1", None, '{"a":[true]}']) == [1, None, {"a": [True]}]
    for texts, code in (
        (["[" + "1," * (SYNC_VALUES_MAX // 2) + "1]"] * 3, "sync.too_large"),
        (["[" * SYNC_DEPTH_MAX + "]" * SYNC_DEPTH_MAX], "sync.malformed"),
        (["1", "{"], "sync.malformed"),
    ):
        with pytest.raises(TailraceError) as caught:
            read_values(texts)
        assert caught.value.code == code
