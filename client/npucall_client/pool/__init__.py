"""Many servers behind one target: who there is, who gets a call, and who gets it next.

Its modules, from the top::

    transport           calls go to a member, and elsewhere if it fails
    pipeline, sessions  a stream for each member; each session on one member
    looker              asks members that failed whether they serve again
    reservations, sums  reservations of several members; answers of all of them added up
    links               connections to members
    course              the way of one call over the members
    sources             where members come from
    table, candidate    what a client knows of its members, and of one of them
    picking, repeats    which members fit; how many calls may be sent again
    members             a member, and what a source is
"""
