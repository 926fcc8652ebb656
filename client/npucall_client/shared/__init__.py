"""Memory that this process shares with a server of the same host."""
