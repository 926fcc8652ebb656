"""SessionService.

Its modules, from the top::

    service, kept     its methods; what they use
    upload, download  one upload; the bytes of a handle
    entries           where the bytes of an upload go
"""
