"""What Prometheus reads: declared, counted and read from the server's parts, shown on a port.

Its modules, from the top::

    shown, exposition  metrics if the setting asks for them; the port that shows them
    counters, gauges   counts of calls; current values
    declared           every metric
"""
