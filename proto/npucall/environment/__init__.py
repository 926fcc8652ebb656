"""What processes read of their host: environment variables, files that change."""
