"""The life of one call or one program on this server, whichever RPC it came by.

Its modules, from the top::

    executions     begins calls and programs
    call, program  one call; one program
    life           what both have in common
    placed, parts  bytes outside the message; parts of regions
"""
