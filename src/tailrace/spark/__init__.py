"""How Spark is started and used; nothing else knows."""
