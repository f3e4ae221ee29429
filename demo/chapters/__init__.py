"""The chapters of the demo."""
