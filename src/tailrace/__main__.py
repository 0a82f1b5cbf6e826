"""`python -m tailrace`."""

from tailrace.cli.main import run

run()
