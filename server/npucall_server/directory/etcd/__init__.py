"""Several directories over one etcd: what each of them hears, all of them know."""
