"""What the server tells of its calls: the log, and spans."""
