"""`kubectl gpu`: reads a cluster with kubectl's credentials, explains with the core, and writes decisions on devices alone.

What decides comes from `pool`, `inventory` and `api`. Nothing of the server's stack is imported by a verb that only
reads: no kubernetes-asyncio, pydantic, aiohttp, structlog or prometheus-client.
"""
