"""Who is judged, and running cases against it."""
