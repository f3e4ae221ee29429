"""Builders, fakes and strategies that several tests share."""
