"""Demonstrations on data made here; nothing else is needed to run them."""
