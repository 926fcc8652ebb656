"""ExecuteStream: its calls follow the table of ``npucall.exchange``.

Its modules, from the top::

    service, stream  all streams; one of them
    calls, call      its open calls; one of them
    packing, early   answers in messages; answers that begin before their call has run
    ids              which ids a stream has used
"""
