"""The durable commit log. It knows nothing of Spark, SQL or sockets."""
