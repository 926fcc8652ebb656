"""Sessions: handles that hold bytes in the device's memory, and digests of bytes that are kept.

Its modules, from the top::

    setup              makes them from the settings
    sessions, session  all sessions; one session
    digests, ids       bytes by their SHA-256; ids of sessions
    room, waiting      memory of handles; waiting for each other
    failures           what others are told of a handle that could not be filled
"""
