"""Rows made of the state, by functions of single keys, and the table that has them all; what a viewer sees of each."""
