"""Answers to single questions: about a device, a pod, and pods that do not exist."""
