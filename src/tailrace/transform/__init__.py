"""Functions: what happens to messages between the log and a writer."""
