"""Names of kubelet's device plugin API `v1beta1`; its messages are in `api.kubelet.proto.deviceplugin_pb2`."""

from typing import Final

VERSION: Final = "v1beta1"
KUBELET_SOCKET: Final = "kubelet.sock"

REGISTRATION_SERVICE: Final = f"{VERSION}.Registration"
PLUGIN_SERVICE: Final = f"{VERSION}.DevicePlugin"
REGISTER: Final = "Register"
GET_OPTIONS: Final = "GetDevicePluginOptions"
LIST_AND_WATCH: Final = "ListAndWatch"
GET_PREFERRED: Final = "GetPreferredAllocation"
ALLOCATE: Final = "Allocate"
PRE_START: Final = "PreStartContainer"

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"
