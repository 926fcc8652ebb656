"""Memory that the server shares with clients of the same host [src:shared-memory]."""
