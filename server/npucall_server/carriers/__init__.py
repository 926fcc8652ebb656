"""How the bytes of a call come in and its answer goes out: threads, streams, peers, connections."""
