"""A node: a process that serves a log to its peers."""
