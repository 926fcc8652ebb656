"""``client.session()``: arrays that are sent once stay on the server, for many calls.

Its modules, from the top::

    session           ``put``, ``run``, ``program``
    program, results  calls that are sent together; results that a call leaves on the server
    remote            a tensor that a session holds
    session_link      a session on its server: its lease, why it ended, how it is opened again
    connection        a client's connection, as calls, pipelines and sessions use it
    checks            what a call will give, before it is sent
    refill, release   arrays that can be sent again; handles that are released together
"""
