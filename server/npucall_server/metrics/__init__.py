"""What Prometheus reads: declared, counted and read from the server's parts, shown on a port.

Its modules, from the top::

    shown, exposition  if the setting asks for it; on a port
    counters, gauges   counts calls; how things are
    declared           every metric
"""
