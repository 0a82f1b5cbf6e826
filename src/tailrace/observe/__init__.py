"""Observing: one description of everything that runs, for people, pages, programs and alarms."""
