"""Rules of the oracle that judge by versions of the API server, or by one kind of object."""
