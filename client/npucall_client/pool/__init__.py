"""Many servers behind one target: finds the members, sends each call to one, tries others.

Its modules, from the top::

    transport           sends a call to a member, and to another one if that fails
    pipeline, sessions  a stream for each member; each session on one member
    looker              asks members that failed whether they serve again
    reservations, sums  reservations of several members; answers of all of them added up
    links               connections to members
    course              the members that one call has tried, and whether it goes on
    sources             where members come from
    table, candidate    what a client knows about its members, and about one of them
    picking, repeats    which members fit; how many calls may be sent again
    members             a member, and what a source is
"""
