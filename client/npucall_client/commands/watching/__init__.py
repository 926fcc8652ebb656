"""The commands that show what others do on a server: ``npucall usage`` and ``npucall top``.

Its modules, from the top::

    members, top, usage  one command each
    texts                amounts as texts
"""
