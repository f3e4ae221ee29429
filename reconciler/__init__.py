"""Level-triggered controllers, one folder a subject, on `runtime` and `sinks`.

They feed the allocation state from informers, and write back status, labels and Events.
In a steady state they write nothing.
"""
