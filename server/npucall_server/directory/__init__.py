"""``npucall-directory``: servers announce themselves there, clients watch the table.

Its modules, from the top::

    command, settings, app  the command; its settings; the directory as a whole
    service, messages       DirectoryService; beats and tables as bytes
    feed, table             sends the table to watching clients; the members
    hosts                   which hosts a caller may announce
"""
