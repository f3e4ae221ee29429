"""HTTP and rights: who a viewer is, what it may see, the routes, the static files, and the processes that serve them."""
