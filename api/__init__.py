"""The API: kinds, names, labels, annotations, quantities and CRD schemas.

Every other package imports this one; it imports no other package of the project.
Values and pure functions only: no I/O, no clock, no state.
"""
