"""Serving over HTTP: what the status page and sync have in common."""
