"""What a run found, and how it is shown.

``tables`` has what ``terminal`` prints and a page shows; ``files`` has the texts of files. What a
report says, such as names, messages and versions, may come from a server that is not trusted: each
format escapes it.
"""
