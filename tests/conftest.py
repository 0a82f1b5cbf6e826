"""What holds for all tests: how hard hypothesis tries, and that nothing skips where everything must run."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import settings

from tailrace import masking

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile("ci", deadline=None, derandomize=False, print_blob=True)
settings.register_profile("long", settings.get_profile("ci"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # so a shell starts what it puts in the background; what the tests start would inherit it, and never hear of Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
"""A JVM that lives for one test spends a third of its time on compiling what then hardly runs."""

NO_SKIP = os.environ.get("TAILRACE_NO_SKIP") == "1"

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that skips, by a mark or by itself, fails where TAILRACE_NO_SKIP=1."""
    report = yield
    return _refuse_skip(report)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """So does a module that skips as a whole."""
    report = yield
    return _refuse_skip(report)


@pytest.hookimpl(tryfirst=True)  # before xdist asks for the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark is started once per run: all tests that use it go to one process."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of a test run, on this machine, with Python workers as in a real run."""
    from tailrace.spark.session import SparkConfig, start

    session = start(SparkConfig(str(tmp_path_factory.mktemp("spark")), slots=4))
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def own_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test wants kept secret is an ordinary word to another."""
    monkeypatch.setattr(masking, "_secrets", set(masking._secrets))


def _refuse_skip(report: Report) -> Report:
    if NO_SKIP and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{reason} (nothing may skip here: TAILRACE_NO_SKIP=1)"
    return report
