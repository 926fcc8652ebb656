"""Messages of etcd's public API, version 3."""
