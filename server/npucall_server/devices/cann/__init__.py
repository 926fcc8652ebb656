"""An Ascend NPU: operators run through CANN's two-phase C API, by ctypes.

Downwards: ``device`` gives calls to lanes; ``lane`` is a thread that runs one call at a time;
``launch``, ``descriptors``, ``memory`` and ``runtime`` are its steps; ``operators`` and
``functions`` are the C functions; ``library`` loads them; ``statuses`` sorts what they answer.
"""
