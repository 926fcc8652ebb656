"""Cases, and the calls that are made from them."""
