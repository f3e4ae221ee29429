"""AdmissionReview in, decision out: pods, pools and devices.

Decodes, decides and encodes; the HTTP handler that calls it lives in `server`.
No I/O and no clock.
"""
