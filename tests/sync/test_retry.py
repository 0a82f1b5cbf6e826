"""When rows that wait for others are tried again."""

from __future__ import annotations

from tailrace.sync.retry import Retry


class Attempts:
    """Tries that say how many waited before and after, each of which takes a second."""

    def __init__(self, *counts: tuple[int, int]) -> None:
        self.left = list(counts)
        self.now_s = 0.0

    def __call__(self) -> tuple[int, int]:
        self.now_s += 1.0
        return self.left.pop(0)


def test_it_is_tried_as_long_as_that_helps() -> None:
    attempts = Attempts((5, 3), (3, 1), (1, 1))
    retry = Retry(lambda: attempts.now_s)
    assert retry.is_due(has_changed=False), "a process before this one may have left some"
    assert retry.did(attempts)
    assert attempts.left == []
    assert not retry.is_due(has_changed=False), "nothing has come since"
    assert retry.is_due(has_changed=True)


def test_where_nothing_waits_nothing_is_tried_until_rows_come() -> None:
    attempts = Attempts((0, 0))
    retry = Retry(lambda: attempts.now_s)
    assert not retry.did(attempts)
    assert not retry.is_due(has_changed=True)
    retry.came()
    assert retry.is_due(has_changed=False)


def test_many_that_wait_do_not_take_all_the_time() -> None:
    attempts = Attempts((5000, 5000))
    retry = Retry(lambda: attempts.now_s)
    assert not retry.did(attempts)
    retry.came()
    assert not retry.is_due(has_changed=True)
    attempts.now_s += 10.0
    assert retry.is_due(has_changed=False)
