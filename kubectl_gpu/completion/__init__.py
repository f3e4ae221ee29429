"""Completion in a shell: what kubectl asks `kubectl_complete-gpu`, in the protocol of cobra."""
