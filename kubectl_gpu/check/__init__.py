"""The verb `check`: what is wrong with an installation, or before one, and what to do about each fault."""
