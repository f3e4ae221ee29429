"""The verb `dump`: which lists of a cluster it reads, and what it keeps of their objects."""
