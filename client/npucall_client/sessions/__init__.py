"""``client.session()``: arrays that are sent once stay on the server, for many calls."""
