"""``client.session()``: what is sent once stays on the server, and is computed with many times.

Its modules, from the top::

    session           ``put``, ``run``, ``program``
    program, results  calls that are sent together; what a call leaves on the server
    remote            a tensor that a session holds
    home              a session on its server: its lease, what ended it, how it goes on
    connection        a client's connection, as calls, pipelines and sessions use it
    checks            what a call will give, before it is sent
    refill, release   what can be filled again; handles that are released together
    transport         what a session asks of a server, or of this process
"""
