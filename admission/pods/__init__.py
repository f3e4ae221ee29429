"""Admission of pods: mutation, validation, reservation and the signature of the annotation."""
