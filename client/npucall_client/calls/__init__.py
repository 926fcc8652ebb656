"""Python's arguments become a call, and its answer becomes arrays; nothing travels here."""
