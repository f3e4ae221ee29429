"""Controllers of pods: nomination, requeue, reservation expiry, binding recovery and the explanation of waits."""
