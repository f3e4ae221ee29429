"""Admission webhooks: matching, calls and the chain of them."""
