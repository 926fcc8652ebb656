"""Hypothesis without deadlines, since tests do not judge time."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("npucall", deadline=None)
settings.load_profile("npucall")
