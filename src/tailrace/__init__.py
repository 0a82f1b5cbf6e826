"""Tailrace takes the changes of any source, keeps them once in a durable log, and carries them to any destination."""

__version__ = "0.1.0"
