"""From the log to a writer, at its own pace."""
