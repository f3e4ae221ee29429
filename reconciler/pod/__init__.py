"""Controllers of pods: nomination, requeue, reservation expiry and binding recovery."""
