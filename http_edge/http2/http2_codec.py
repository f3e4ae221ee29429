"""h2 as this port uses it: what it checks, and the settings that the peer is told."""

from typing import TYPE_CHECKING, Final, final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes, Settings

from http_edge.http2.streams import window_of

if TYPE_CHECKING:
    from http_edge.limits import Limits

_CONFIG: Final = H2Configuration(
    client_side=False,
    header_encoding=None,
    # No field is passed on, so what nobody looks at need not be well-formed; it costs a third of a request.
    validate_inbound_headers=False,
    normalize_inbound_headers=False,
    # Answers are the server's own.
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
)
_CLOSED_STREAMS: Final = 1024
"""How many are known as closed: frames on them may be on their way. h2 keeps 65,536, which are 10 MB."""
_TABLE_BYTES: Final = 512
"""Bytes of fields that answers repeat, though peers hold more: each field is looked for in all of them."""


@final
class _Codec(H2Connection):
    MAX_CLOSED_STREAMS = _CLOSED_STREAMS


def codec_of(limits: "Limits", frame_bytes: int) -> H2Connection:
    """Return the server's side of a new connection with frames of at most so many bytes."""
    codec = _Codec(_CONFIG)
    codec.local_settings = Settings(
        client=False,
        initial_values={
            SettingCodes.MAX_CONCURRENT_STREAMS: limits.pipelined,
            SettingCodes.INITIAL_WINDOW_SIZE: window_of(limits),
            SettingCodes.MAX_FRAME_SIZE: frame_bytes,
            SettingCodes.MAX_HEADER_LIST_SIZE: limits.head_bytes,
        },
    )
    # In force before the peer has acknowledged them.
    codec.max_inbound_frame_size = frame_bytes
    codec.decoder.max_header_list_size = limits.head_bytes
    bound_table(codec)
    return codec


def bound_table(codec: H2Connection) -> None:
    """Keep the table of sent fields small, whatever size the peer allows."""
    codec.encoder.header_table_size = min(codec.encoder.header_table_size, _TABLE_BYTES)
