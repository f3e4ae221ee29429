"""Tests with real containers; a package so that their node lives as long as their directory."""
