"""The front: a node that real Tarantools follow as one of theirs. Experimental; docs/guides/tarantool-replicas.md."""
