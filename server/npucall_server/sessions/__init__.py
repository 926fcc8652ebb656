"""Sessions: handles that hold bytes in the device's memory, and digests of bytes that are kept."""
