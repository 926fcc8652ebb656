"""Decides which answer is right, and how near an answer has to come.

Its modules, from the top::

    check            an answer against what was expected
    written_answers  the answers of cases that are written by hand
    tolerance        how near an answer came
    profiles         how near it has to come
    truth            what a call must answer
"""
