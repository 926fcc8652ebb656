"""SessionService."""
