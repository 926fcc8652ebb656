"""Memory that the server shares with clients of the same host [src:shared-memory].

Its modules, from the top::

    side_socket  hands regions out, and credentials
    regions      pieces of shared memory
"""
