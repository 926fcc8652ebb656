"""``npucall-directory``: servers announce themselves there, clients watch the table.

Its modules, from the top::

    command, settings, app  the command; its settings; puts it together
    service, messages       DirectoryService; beats and tables as bytes
    etcd                    several directories over one etcd
    feed, table             hands the table to those who watch; the members
    hosts                   which hosts a caller may announce
"""
