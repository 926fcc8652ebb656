"""Calls in frames: the carrier beside gRPC, for one host and between hosts (``frames.proto``)."""
