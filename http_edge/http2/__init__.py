"""HTTP/2 on the port: frames, streams and their bodies, and the protocol of one connection, by the library h2."""
