"""The gRPC services of the server."""
