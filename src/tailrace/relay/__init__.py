"""The relay: a node's log served to its peers, and theirs applied here."""
