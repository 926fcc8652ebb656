"""The life of one call, or one program, on this server, whatever way it came.

Its modules, from the top::

    executions     begins them
    call, program  one call; one program
    life           what both have in common
    placed, parts  bytes that are elsewhere; parts of regions
"""
