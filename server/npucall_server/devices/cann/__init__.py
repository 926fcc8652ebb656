"""An Ascend NPU: operators run through CANN's two-phase C API, by ctypes.

Downwards: ``device`` puts it together; ``lane`` runs one call at a time, in a thread of
``devices.lanes``, and ``planner`` plans calls in others; ``launch``, ``descriptors``, ``memory``
and ``runtime`` are their steps; ``operators`` and ``functions`` are the C functions; ``library``
loads them; ``statuses`` sorts what they answer.

The others::

    advice, unverified, claims  advice on failures; what only hardware can prove
    program, transfer, copies  one run of a program; copies as a whole, or in pieces
    scratch, resident, values  workspace and zeros; handles; checks of values
    clearing, events          fills memory with zeros; times on a stream
    host, headers             the catalogue of a host; operators from installed headers
    header_grammar, header_roles  the grammar of headers; what parameters are for
    status_table              every status, and what it means
"""
