"""The verb `whatif`: pods placed on a copy of the cluster, by the code that places them in the server."""
