"""The conformance suite: judges any server against a second, naive statement of every operator.

``npucall conform TARGET`` runs it. Its rooms, from the bottom:

* ``stating`` has what statements are made of. Its docstring shows how to state an operator.
* ``statements`` has the statements, one file an operator.
* ``cases`` decides what is asked. A case has no data, only what makes them; its data follow from
  the seed and the id of the case.
* ``judging`` decides what is right, and how near an answer has to come.
* ``running`` asks a server, or a library in place of one, and holds its answers against what is
  expected.
* ``reporting`` says what a run found: verdict, coverage, causes, known deviations, pages and files.
* ``bundle`` keeps failing cases for ``npucall replay``; ``fuzz`` draws random calls; ``golden``
  writes inputs and expected outputs into files for other tools.
* ``asked`` runs what the options ask for; ``command`` declares ``npucall conform`` and
  ``npucall replay``; ``wire`` sends any call, a wrong one too.
"""
