"""``client.session()``: what is sent once stays on the server, and is computed with many times."""
