"""Outside systems, one folder each."""
