"""The documentation as a site: what mkdocs calls while it builds the pages of `docs` (`make docs`)."""
