"""Random calls of every operator, compared with its statement; failing calls are made small.

Hypothesis draws a case: dtypes, shapes, layouts, attributes, special numbers, or defects. The
``Runner`` then judges the case by the same rules as all others. The modules, from the bottom::

    draws             numbers and choices, which Hypothesis makes smaller
    layouts           any strides, gaps, offset, order of dimensions; expanded inputs
    shapes            base shapes within what a statement takes, stretched where inputs broadcast
    attribute_values  the statement's combinations, numbers between them, and values of its setups
    numbers           special values put among those that a domain draws
    valid             a whole call that must be answered
    invalid           a call with one defect or several, of which the first must be found
    words             a case in words, from which its id follows
    search            draws, judges and makes small, round after round, until the time is up

Every drawn integer is between -99 and 99: beyond them Hypothesis draws constants of the modules
that are imported, and the same seed would not give the same calls in every process.
"""
