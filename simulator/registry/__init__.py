"""An OCI registry in memory: what it holds and answers, and a server for it without TLS or users."""
