"""``local:``: calls are computed in this process.

Its modules, from the top::

    transport  computes calls
    sessions   keeps what sessions put
"""
