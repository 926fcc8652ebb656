"""What a run found, and how it is shown.

Its modules, from the top::

    formats            a report as a page, a table, a file
    baseline           deviations that are known
    causes, diagnosis  failures, grouped; what one failed case shows
    columns, matrix    two servers next to each other; a run on every product
    report             what a run found
    coverage, pairs    what was judged of what should have been; answers of two servers
    patterns           what wrong elements have in common
"""
