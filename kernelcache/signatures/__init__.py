"""What the signatures of an image prove: by key or keyless, and that this control plane wrote an annotation.

Pure but for the processor. A registry's bytes come in as values, and go out as a result with its reason.
Nothing here decides what follows from a result: `spec.verification.mode` is the caller's.
"""
