"""``local:``: calls are computed in this process."""
