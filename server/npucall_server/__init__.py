"""The server: one process that runs operators on one device."""
