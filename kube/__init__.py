"""The API server's adapter: requests, informers, apply, events, leases.

Configuration and authentication are kubernetes-asyncio's; bodies are decoded by msgspec.
Nothing here knows what a pool is.
"""
