"""Ways of asking an autoscaler for nodes, one module each, behind `node_autoscaler.NodeAutoscaler`."""
