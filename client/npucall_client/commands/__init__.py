"""The command ``npucall``."""
