"""Verbs: each parses its arguments, reads, and gives an answer for people or programs."""
