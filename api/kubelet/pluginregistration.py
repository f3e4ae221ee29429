"""Names of kubelet's plugin registration API `v1`; its messages are in `api.kubelet.proto.pluginregistration_pb2`.

The roles are the other way round than with device plugins: a plugin serves a socket in the directory, and kubelet,
which watches the directory, calls it.
"""

from typing import Final

PLUGIN_REGISTRATION_SERVICE: Final = "pluginregistration.Registration"
GET_INFO: Final = "GetInfo"
NOTIFY_STATUS: Final = "NotifyRegistrationStatus"

CSI_PLUGIN: Final = "CSIPlugin"
