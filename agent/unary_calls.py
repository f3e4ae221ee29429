"""The boundary of a unary gRPC call that kubelet makes: decoding, duration, and the status of what goes wrong.

A refusal is the answer that was decided on; bytes that are no message are the caller's fault; any other exception is
ours, is counted and logged, and ends nothing but the call.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, final

import grpc
import structlog
from google.protobuf.message import DecodeError, Message

from telemetry.agent_metrics import ANSWER_DURATION, ANSWERS
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from api.clock import Clock

_log = structlog.get_logger()

CallContext = grpc.aio.ServicerContext[Any, Any]
Request = TypeVar("Request", bound=Message)


class CallRefusedError(Exception):
    """The status that the caller gets in place of a response."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class UnaryCalls:
    """Makes the handlers of one service."""

    component: str
    """Component as it is called in texts, with its article."""
    api: str
    """Name of the API whose messages it takes."""
    task: str
    """Under which its own faults are counted."""
    clock: "Clock"
    log_keys: "Mapping[str, str]"
    """Log keys of every line."""

    def handler(
        self,
        call: str,
        request_type: type[Request],
        answer: "Callable[[Request], Awaitable[Message]]",
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        async def handle(content: bytes, context: CallContext) -> bytes:
            started, code, text = self.clock.monotonic(), grpc.StatusCode.CANCELLED, ""
            response = b""
            try:
                response = (await answer(request_type.FromString(content))).SerializeToString()
                code = grpc.StatusCode.OK
            except CallRefusedError as refusal:
                code, text = refusal.code, str(refusal)
                _log.warning("call refused", call=call, error=text, **self.log_keys)
            except DecodeError:
                code = grpc.StatusCode.INVALID_ARGUMENT
                text = f"{call}: malformed request: not a message of {self.api}"
                _log.warning("malformed request", error=text, **self.log_keys)
            except Exception as error:  # noqa: BLE001  # the boundary of a request
                code = grpc.StatusCode.INTERNAL
                text = f"{call}: internal error of {self.component}"
                TASK_FAILURES.labels(self.task).inc()
                _log.error("call failed", call=call, exc_info=error, **self.log_keys)
            finally:
                # Before the answer leaves: a caller that has it finds it counted.
                ANSWERS.labels(call, code.name).inc()
                ANSWER_DURATION.labels(call).observe(self.clock.monotonic() - started)
            if code is not grpc.StatusCode.OK:
                await context.abort(code, text)
            return response

        return grpc.unary_unary_rpc_method_handler(handle)
