"""What admission of kernel caches needs from outside: registries, pull secrets, the trust root, its own keys."""
