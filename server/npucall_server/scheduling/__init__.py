"""Who gets the device, and when: admission, turns, shares, reservations."""
