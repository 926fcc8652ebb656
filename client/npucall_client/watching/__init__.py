"""The commands that show what others do on a server: ``npucall usage`` and ``npucall top``."""
