"""ExecuteStream."""
