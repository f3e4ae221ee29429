"""Reservations: their ledger, their conflicts, and their restoration."""
