"""Several directories with one etcd: each tells the others what it hears.

Its modules, from the top::

    store   writes what this directory hears, and reads what others write
    client  etcd's API
    v3      etcd's messages
"""
