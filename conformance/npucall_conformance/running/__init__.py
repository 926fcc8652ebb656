"""Runs cases against a server, or a library in place of a server.

Its modules, from the top::

    runner         runs cases
    listing        judges what a server lists
    looks          further looks at a call that has been answered
    subject        who is judged: a server, one member of a pool, this process, or a library
    adapters       what answers calls
    not_judged     what is not judged, and why
"""
