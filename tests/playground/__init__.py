"""`make playground`: all five systems in a cluster on this machine that stays until `make playground-down`.

`__main__` starts and ends it; `cluster_process` is the one process that owns all others.
"""
