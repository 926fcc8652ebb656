"""The life of one call, or one program, on this server, whatever way it came."""
