"""Frames: calls over a plain connection, without gRPC (``frames.proto``)."""
