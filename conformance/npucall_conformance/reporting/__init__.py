"""What a run found, and how it is shown.

``terminal`` is for people at a terminal; ``json_file``, ``junit`` and ``html`` have ``render``, the
text of a file of one report or of every product. The texts of a report, such as names, messages and
versions, may come from a server that is not trusted: each format escapes all of them.

Its modules, from the top::

    terminal, html, json_file, junit  the formats; ``page.html`` is the page's template
    wording            amounts, verdicts and commands in words
    baseline, causes   known deviations; failures with something in common
    diagnosis          what is wrong with an answer
    report             a run and its outcomes
    coverage, pairs    what was judged, and on several products; two servers next to each other
    patterns           what the wrong elements of an output have in common
"""
