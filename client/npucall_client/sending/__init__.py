"""Calls travel to a server, or to the members of a pool, and back."""
