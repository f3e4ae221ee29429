"""The CSI driver of a node: kernel caches as read-only inline volumes of pods (services Identity and Node).

What is on the node's disk, and how it is mounted, come through the ports of `agent.csi.volume_source`; no state is
kept here but the calls that are open. The reference to a volume's content is its mount.
"""
