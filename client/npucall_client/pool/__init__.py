"""Many servers behind one target: finds the members, sends each call to one, tries others."""
