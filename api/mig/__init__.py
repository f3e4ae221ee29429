"""MIG: names of profiles, and which of them fit together on a device. Pure."""
