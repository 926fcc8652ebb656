"""Every setting of the server and its commands, and what they may be."""
