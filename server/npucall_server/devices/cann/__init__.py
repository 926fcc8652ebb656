"""An Ascend NPU: runs operators through CANN's two-phase C API, by ctypes.

From the top: ``device`` puts everything together. ``lane`` runs one call at a time, in a thread of
``devices.lanes``; ``planner`` plans calls in other threads. Both use ``launch``, ``descriptors``,
``memory`` and ``runtime``. ``operators`` and ``functions`` are the C functions. ``library`` loads
them; ``statuses`` sorts the statuses that they answer.

The other modules::

    advice, unverified, claims  advice on failures; what only hardware can prove
    program, transfer, copies  one run of a program; copies as a whole, or in pieces
    scratch, resident, values  workspace and zeros; handles; checks of values
    clearing, events          fills memory with zeros; times on a stream
    host, headers             the catalogue of a host; operators from installed headers
    header_grammar, header_roles  the grammar of headers; what parameters are for
    status_table              every status and its meaning
"""
