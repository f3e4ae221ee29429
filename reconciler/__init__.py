"""Level-triggered controllers, one a file.

They feed the index and the ledger from informers, and write back status, labels and events.
In a steady state they write nothing.
"""
