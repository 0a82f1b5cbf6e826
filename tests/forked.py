"""Other processes come from a server that has everything loaded already: one costs milliseconds and not seconds."""

from __future__ import annotations

import multiprocessing
from typing import Final

FORKED: Final = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["pandas", "pyarrow.compute", "tests.adaptor.contract", "tests.crash.children"])
