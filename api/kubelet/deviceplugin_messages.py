"""The messages of kubelet's device plugin API `v1beta1`, as fields and numbers."""

from typing import Final

from api.kubelet.protobuf import FLAG, INT32, INT64, TEXT, TEXT_MAP, Field, Messages

PACKAGE: Final = "v1beta1"

MESSAGES: Final = Messages(
    PACKAGE,
    {
        "DevicePluginOptions": (
            Field(1, "pre_start_required", FLAG),
            Field(2, "get_preferred_allocation_available", FLAG),
        ),
        "RegisterRequest": (
            Field(1, "version", TEXT),
            Field(2, "endpoint", TEXT),
            Field(3, "resource_name", TEXT),
            Field(4, "options", "DevicePluginOptions"),
        ),
        "NUMANode": (Field(1, "ID", INT64),),
        "TopologyInfo": (Field(1, "nodes", "NUMANode", is_list=True),),
        "Device": (
            Field(1, "ID", TEXT),
            Field(2, "health", TEXT),
            Field(3, "topology", "TopologyInfo"),
        ),
        "ListAndWatchResponse": (Field(1, "devices", "Device", is_list=True),),
        "ContainerAllocateRequest": (Field(1, "devices_ids", TEXT, is_list=True),),
        "AllocateRequest": (
            Field(1, "container_requests", "ContainerAllocateRequest", is_list=True),
        ),
        "CDIDevice": (Field(1, "name", TEXT),),
        "ContainerPreferredAllocationRequest": (
            Field(1, "available_deviceIDs", TEXT, is_list=True),
            Field(2, "must_include_deviceIDs", TEXT, is_list=True),
            Field(3, "allocation_size", INT32),
        ),
        "PreferredAllocationRequest": (
            Field(1, "container_requests", "ContainerPreferredAllocationRequest", is_list=True),
        ),
        "ContainerPreferredAllocationResponse": (Field(1, "deviceIDs", TEXT, is_list=True),),
        "PreferredAllocationResponse": (
            Field(1, "container_responses", "ContainerPreferredAllocationResponse", is_list=True),
        ),
        "PreStartContainerRequest": (Field(1, "devices_ids", TEXT, is_list=True),),
        "Mount": (
            Field(1, "container_path", TEXT),
            Field(2, "host_path", TEXT),
            Field(3, "read_only", FLAG),
        ),
        "DeviceSpec": (
            Field(1, "container_path", TEXT),
            Field(2, "host_path", TEXT),
            Field(3, "permissions", TEXT),
        ),
        # 4, annotations, is upstream's; this project grants nothing by it.
        "ContainerAllocateResponse": (
            Field(1, "envs", TEXT_MAP),
            Field(2, "mounts", "Mount", is_list=True),
            Field(3, "devices", "DeviceSpec", is_list=True),
            Field(5, "cdi_devices", "CDIDevice", is_list=True),
        ),
        "AllocateResponse": (
            Field(1, "container_responses", "ContainerAllocateResponse", is_list=True),
        ),
    },
)
