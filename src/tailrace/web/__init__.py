"""The page: how everything is, in a browser, and the same as JSON and for Prometheus."""
