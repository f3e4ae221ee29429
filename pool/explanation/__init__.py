"""Why a pod waits for units, and what would help.

`explain` reads an allocation state and returns values; texts are `telemetry.explanation_texts`'s. It writes nothing,
reads no clock, and proves each remedy by placing the pod on a copy of one node.
"""
