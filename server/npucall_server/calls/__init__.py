"""The life of one call or one program on this server, whichever RPC it came by."""
