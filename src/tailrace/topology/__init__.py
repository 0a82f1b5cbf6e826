"""Byte-identical copies of a log, in tiers that a registry places."""
