"""Random calls of every operator, compared with its statement; failing calls are made small.

Hypothesis draws a case: dtypes, shapes, layouts, attributes, special numbers, or defects. The
``Runner`` then judges the case by the same rules as all others. The modules, from the bottom::

    draws         layouts, base shapes, attributes, from small whole numbers
    numbers       special values put among those that a domain draws
    random_calls  a whole call that must be answered, or refused; its words and id
    search        draws, judges and makes small, round after round, until the time is up

Every drawn integer is between -99 and 99: beyond them Hypothesis draws constants of the modules
that are imported, and the same seed would not give the same calls in every process.
"""
