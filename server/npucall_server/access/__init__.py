"""Who calls: identities, the tenants that they belong to, and what proves who somebody is.

Its modules, from the top::

    setup                 puts these together, and reads again what changes
    guard, tenants_guard  who calls a server without tenants; a server with tenants
    tokens, local_users   tokens of the server's file; credentials of the host's users
    oidc, keys, issuers   tokens of an issuer; its public keys; which addresses it may have
    certificates          names and end of a client's certificate
    belonging, tenants    which tenant a caller belongs to; tenants and their limits
    identity, refusals    who somebody is; why a credential is refused
"""
