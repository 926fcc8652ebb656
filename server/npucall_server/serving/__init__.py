"""Puts a server together, binds its addresses, serves, drains."""
