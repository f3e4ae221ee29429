"""The Helm chart, written from the builders of `manifests`: `make chart`.

The objects are built with tokens in place of everything that a value decides, and in their YAML
each token becomes an expression of Helm. Only what has no counterpart in Python lies in `static`:
helpers, checks and the notes.
"""
