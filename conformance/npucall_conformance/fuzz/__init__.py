"""Random calls of every operator, compared with its statement; failing calls are made small.

Hypothesis draws a case: dtypes, shapes, layouts, attributes, special numbers, or defects. The
``Runner`` then judges the case by the same rules as all others. Every drawn integer is between -99
and 99: beyond them Hypothesis draws constants of the modules that are imported, and the same seed
would not give the same calls in every process.
"""
