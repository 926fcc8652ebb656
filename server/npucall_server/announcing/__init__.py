"""A server that tells directories who it is and how busy it is.

Its modules, from the top::

    announcer  a thread for each directory
    member     what the server says of itself
"""
