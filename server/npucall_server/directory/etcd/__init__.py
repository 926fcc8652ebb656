"""Several directories over one etcd: what each of them hears, all of them know.

Its modules, from the top::

    store   writes what this directory hears, and reads what others do
    client  etcd's API
    v3      etcd's messages
"""
