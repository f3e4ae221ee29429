"""The pure core: device index, reservation ledger, placement and refusals.

Decisions are values with reasons. Methods are plain `def`: in one event loop every call is atomic.
No I/O, no clock (`now` is an argument), no wire format of the extender or of admission, no user-facing text.
"""
