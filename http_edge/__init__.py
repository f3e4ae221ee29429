"""The HTTP edge that server, console and agent share: a port with its connections, limits and protocols, and routes.

`reviews` asks the API server who shows a token. Beside them is what a process that serves takes of its machine: the
clock, the limit of open files, garbage collection. Nothing here knows a pool, a decision or a controller.
"""
