"""Calls on a server."""
