"""The command line: one file per command. Data goes to stdout, talk to stderr."""
