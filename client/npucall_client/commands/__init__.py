"""The command ``npucall``.

Its modules, from the top::

    command              ``npucall`` itself, ``info``, ``operators``, ``run``
    reservation_command  ``npucall reserve`` and ``npucall release``
    members, top, usage  the subcommands of these names
    command_texts        what ``npucall info`` and ``npucall operators`` say
    console, exits       tables and targets of all commands; exit codes
    texts                amounts as texts
"""
