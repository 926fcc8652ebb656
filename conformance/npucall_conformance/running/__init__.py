"""Runs cases against a server, or a library in place of a server.

Its modules, from the top::

    subjects         who is judged, by the command line
    runner           runs cases
    listing          judges what a server lists
    looks            further looks at a call that has been answered
    applying         whether a case is for a server
    judged           what is judged: who it is, what it lists
    adapters         what answers calls
    callers, pinned  several callers; one member of a pool
    unjudged         what was not judged, and why
"""
