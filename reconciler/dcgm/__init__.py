"""Scrapes DCGM exporters."""
