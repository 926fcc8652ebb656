"""Runs cases against a server, or a library in place of a server.

Its modules, from the top::

    runner         runs cases
    listing        judges what a server lists
    looks          further looks at a call that has been answered
    applicability  whether a case is for a server
    subject        who is judged: by the command line, what it is, what it lists
    adapters       what answers calls
    callers        several callers
    fixed_target   one member of a pool
    not_judged     what was not judged, and why
"""
