"""The CPU reference: prepared calls and their arrays become outputs."""
