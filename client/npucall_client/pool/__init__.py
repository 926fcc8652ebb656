"""Many servers behind one target: who there is, who gets a call, and who gets it next."""
