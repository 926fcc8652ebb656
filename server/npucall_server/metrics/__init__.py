"""What Prometheus reads: declared, counted and read from the server's parts, shown on a port."""
