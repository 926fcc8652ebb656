"""Who calls: identities, the tenants that they belong to, and what proves who somebody is."""
