"""Admission webhooks for pods, GPUPools and GPUDevices: AdmissionReview in, decision out.

The webhooks decode, decide and encode; the HTTP handler that calls them is in `server`.
No I/O and no clock.
"""
