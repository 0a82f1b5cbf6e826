"""A cluster's executors need this package: it travels with the session."""

from __future__ import annotations

import os
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE_NAME: Final = "tailrace.zip"


def ship(session: SparkSession, directory: str) -> None:
    """Let every executor import this very package."""
    archive = os.path.join(directory, ARCHIVE_NAME)
    package = Path(str(files("tailrace")))
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(package.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                packed.write(path, path.relative_to(package.parent))
    session.sparkContext.addPyFile(archive)
