"""A pool's times and texts, which servers, directories and clients share."""

BEAT_SECONDS = 1.0
"""Between two beats of a server."""
SUSPECT_SECONDS = 3.0
"""Of silence, after which a member is asked last: a beat is late on a host that is busy."""
REMOVED_SECONDS = 30.0
"""Of silence, after which a member is gone."""
COMPLETE_SECONDS = 3.0
"""After its start a directory knows all members; until then nobody removes one."""
QUIET_SECONDS = 10.0
"""Longest time without a message to those who watch."""
DIRECTORY_PORT = 50050
"""Of a directory, where none is said."""
