"""A server that tells directories who it is and how busy it is."""
