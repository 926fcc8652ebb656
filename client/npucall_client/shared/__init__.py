"""Memory that this process shares with a server of the same host.

Its modules, from the top::

    memory       ``client.shared()``
    places       the arrays of a call that lie in shared memory
    side_socket  how a client gets the memory
"""
