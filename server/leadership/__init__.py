"""Becoming the leader and staying it: takeover, the term object, and bound pods."""
