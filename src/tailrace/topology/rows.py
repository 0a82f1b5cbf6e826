"""The nodes of a registry as rows of its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from tailrace.topology.member import Report, State
from tailrace.topology.site import Site
from tailrace.topology.storage import Record


def site_of(row: Mapping[Any, Any]) -> Site:
    """The node of a row."""
    return Site(row["dbname"], row["host"])


def source_of(row: Mapping[Any, Any]) -> Site:
    """The source in a row."""
    return Site(row["source_dbname"], row["source_host"])


def pair_of(replica: Site, source: Site) -> dict[str, Any]:
    """A replica and its source as columns."""
    return {
        "dbname": replica.database,
        "host": replica.host,
        "source_dbname": source.database,
        "source_host": source.host,
    }


def links_of(record: Record) -> Iterator[dict[str, Any]]:
    """The rows of the connections of one node."""
    for source, is_reserved in ((record.source, False), (record.reserved, True)):
        if source is not None:
            yield {**pair_of(record.site, source), "is_reserved": is_reserved}


def row_of(record: Record) -> dict[str, Any]:
    """The row of one node."""
    report = record.report
    return {
        "dbname": record.site.database,
        "host": record.site.host,
        "file": report.generation,
        "offset": report.received,
        "last_keepalive": None
        if record.seen is None
        else datetime.fromtimestamp(record.seen, UTC).replace(tzinfo=None),
        "state": record.state.value,
        "first_offset": report.first_offset,
        "applied": report.applied,
        "lag_bytes": report.lag_bytes,
        "lag_s": report.lag_s,
        "is_source": record.is_source,
        "is_stopped": record.is_stopped,
    }


def record_of(row: Mapping[Any, Any], links: Mapping[tuple[Site, bool], Site]) -> Record:
    """The inverse of `row_of` and `links_of`."""
    site, seen = site_of(row), row["last_keepalive"]
    return Record(
        site,
        State(row["state"]),
        row["is_source"],
        row["is_stopped"],
        Report(row["file"], row["first_offset"], row["offset"], row["applied"], row["lag_bytes"], row["lag_s"]),
        None if seen is None else seen.replace(tzinfo=UTC).timestamp(),
        links.get((site, False)),
        links.get((site, True)),
    )
