"""Decides which answer is right, and how near an answer has to come."""
