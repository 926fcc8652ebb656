"""What a run found, and how it is shown.

``terminal`` is for people at a terminal; ``json_file``, ``junit`` and ``html`` have ``render``, the
text of a file of one report or of every product. The texts of a report, such as names, messages and
versions, may come from a server that is not trusted: each format escapes all of them.
"""
