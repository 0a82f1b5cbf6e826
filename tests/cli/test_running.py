"""What a run says."""

from __future__ import annotations

import io
import logging
import os

import pytest

from tailrace.cli.lines import Lines
from tailrace.cli.running import Talk, TalkHandler
from tailrace.message import Offset
from tailrace.pipeline.run import Summary

SUMMARY = Summary(captured={}, delivered={}, end=Offset(8), seconds=1.0)


def test_lines_come_in_order_and_the_summary_last() -> None:
    stream = io.StringIO()
    with Talk(Lines(stream)) as talk:
        for number in range(100):
            talk.say(str(number))
        talk.ended(SUMMARY)
    *lines, captured, ended = stream.getvalue().splitlines()
    assert lines == [str(number) for number in range(100)]
    assert captured.startswith("captured 0 messages")
    assert ended == "ended at offset 7 after 1.0 s"


def test_nothing_that_a_terminal_obeys() -> None:
    stream = io.StringIO()
    with Talk(Lines(stream)) as talk:
        talk.say("a\x1b[2J\nb")
    assert stream.getvalue() == "a\\x1b[2J\\nb\n"


def test_quiet() -> None:
    stream = io.StringIO()
    with Talk(Lines(stream), quiet=True) as talk:
        talk.say("hello")
        talk.ended(SUMMARY)
    assert stream.getvalue() == ""


@pytest.mark.parametrize("quiet", [False, True])
def test_log_records_are_lines_too(quiet: bool) -> None:
    stream = io.StringIO()
    with Talk(Lines(stream), quiet=quiet) as talk:
        logger = logging.Logger("tailrace.test")
        logger.addHandler(TalkHandler(talk))
        logger.warning("consumer %s is invalidated", "lake")
    assert stream.getvalue() == "warning: consumer lake is invalidated\n"


def test_a_record_of_several_lines() -> None:
    stream = io.StringIO()
    with Talk(Lines(stream)) as talk:
        logger = logging.Logger("tailrace.test")
        logger.addHandler(TalkHandler(talk))
        logger.info("{\n  1\x1b\n}")
    assert stream.getvalue() == "info: {\n  1\\x1b\n}\n"


def test_how_something_failed_is_told_with_it() -> None:
    stream = io.StringIO()
    with Talk(Lines(stream)) as talk:
        logger = logging.Logger("tailrace.test")
        logger.addHandler(TalkHandler(talk))
        try:
            raise ValueError("out\x1b of range")
        except ValueError:
            logger.exception("GET / failed")
    first, second, *_, last = stream.getvalue().splitlines()
    assert (first, last) == ("error: GET / failed", "ValueError: out\\x1b of range")
    assert second.startswith("Traceback")


def test_what_is_only_good_to_know_is_not_told_when_quiet() -> None:
    stream = io.StringIO()
    with Talk(Lines(stream), quiet=True) as talk:
        logger = logging.Logger("tailrace.test")
        logger.addHandler(TalkHandler(talk))
        logger.info("a message")
    assert stream.getvalue() == ""


def test_a_reader_that_went_away_disturbs_nobody() -> None:
    read, write = os.pipe()
    os.close(read)
    stream = os.fdopen(write, "w")
    with Talk(Lines(stream)) as talk:
        talk.say("hello")
        talk.ended(SUMMARY)
    with pytest.raises(BrokenPipeError):  # what is still in its buffer
        stream.close()
