"""A reader's data into the log: copy and changes, without a gap."""
