"""The vocabulary: kinds, names, labels, annotations, quantities, CRD schemas.

Everything else speaks in these words, so this package imports nothing of ours.
Values and pure functions only: no I/O, no clock, no state.
"""
