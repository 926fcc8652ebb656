"""What a run found, and how it is shown.

``tables`` has what ``terminal`` prints and a page shows; ``json_file``, ``junit`` and ``html`` have
``render``, the text of a file. The texts of a report, such as
names, messages and versions, may come from a server that is not trusted: each format escapes them.
"""
