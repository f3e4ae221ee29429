"""Controllers of autoscaling: nodes that are asked for, watched, and given to the pods that they came for."""
