"""Reservations, the ledger that holds them, their conflicts, and their restoration."""
