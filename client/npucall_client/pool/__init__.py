"""Many servers behind one target: finds the members, sends each call to one, tries others.

Its modules, from the top::

    pool_transport      what a client asks of a pool
    choice              which member gets the next attempt
    health_checks       asks members that failed whether they serve again
    reservations, sums  reservations of several members; answers of all of them added up
    links               connections to members
    sources             where members come from
    table, candidate    what a client knows about its members, and about one of them
    picking, repeats    which members fit; how many calls may be sent again
    members             a member, and what a source is
"""
