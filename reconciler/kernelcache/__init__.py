"""Controllers of kernel caches: their status and finalizers, and the objects of nodes that are gone.

What a status says is decided in `kernelcache` and in `cache_figures`; images are proven by what admission signed.
"""
