"""The commands of ``npucall-server``, one a module; ``serve`` is the one without a name."""
