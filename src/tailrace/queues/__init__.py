"""Routing queues: one payload to many sites, in order, exactly once into the queue at each."""
