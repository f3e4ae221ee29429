"""One module a state: what differs between installations, put into the state's manifests."""
