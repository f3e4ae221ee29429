"""The pure core: device index, reservation ledger, placement and explanations.

Decisions are values with reasons. Plain `def` only: in one event loop every call is atomic.
No I/O, no clock (`now` is an argument), no Kubernetes wire format, no text for people.
"""
