"""Ids and signatures of reservations."""
