"""How a report is shown.

``table.progress`` and ``table.show`` are for people at a terminal; ``json_file``, ``junit`` and
``html`` each have ``write(report: Report, path: Path) -> None``. Modules that start with an
underscore are parts of the page; ``text`` is what all of them share.

The texts of a report, such as names, messages and versions, may come from a server that is not
trusted. Each format escapes all of them.

Its modules, from the top::

    html, json_file, junit    a page; a file for programs; a file for CI
    table, matrix, text       at a terminal; several products; amounts as texts
    _causes, _coverage, _pairs, _tables  sections of the page
    _plots, _markup, _style   pictures, elements and style of the page
"""
