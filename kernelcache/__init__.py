"""GPU kernel caches in OCI images: what an image holds, which devices it fits, what signs it, what a node keeps of it.

Pure: every decision is a value with its reason. The format is that of GKM's images (MCV, variant "compat").
"""
