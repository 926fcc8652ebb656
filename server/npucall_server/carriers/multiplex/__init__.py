"""ExecuteStream: its calls follow the table of ``npucall.exchange``."""
