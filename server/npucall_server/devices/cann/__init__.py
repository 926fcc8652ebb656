"""An Ascend NPU: operators run through CANN's two-phase C API, by ctypes.

Downwards: ``device`` puts it together; ``lane`` runs one call at a time, in a thread of
``devices.lanes``, and ``planner`` plans calls in others; ``launch``, ``descriptors``, ``memory``
and ``runtime`` are their steps; ``operators`` and ``functions`` are the C functions; ``library``
loads them; ``statuses`` sorts what they answer.
"""
