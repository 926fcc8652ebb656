"""Runs cases against a server, or a library in place of a server."""
