"""Section `node_software`: NVIDIA's ClusterPolicy and NVIDIADriver, and what they bring to nodes."""

from typing import Annotated

from pydantic import Field

from server.setting_sections import Section

ImageVariable = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*_IMAGE$")]
ImageText = Annotated[str, Field(pattern=r"^\S+$")]


class NodeSoftwareSettings(Section):
    """ClusterPolicies and NVIDIADrivers (docs/node-software.md)."""

    enabled: bool = False
    """Serve both kinds: driver, container toolkit and operands of nodes as NVIDIA's GPU Operator deploys them, in its place.
    A ClusterPolicy takes the place of the operands of `bootstrap`."""
    images: dict[ImageVariable, ImageText] = {}
    """Images of operands for which a ClusterPolicy names none, by the variables of NVIDIA's GPU Operator, such as
    `DRIVER_IMAGE`. Variables of this process count besides."""
