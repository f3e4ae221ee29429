"""What kubelet reports of a pod's containers, where it matters why one is not ready."""

from api.meta import Model


class ContainerWaiting(Model, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class ContainerTerminated(Model, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: str | None = None


class ReportedState(Model, frozen=True):
    """State of a container; without both fields it runs."""

    waiting: ContainerWaiting | None = None
    terminated: ContainerTerminated | None = None


class ReportedContainer(Model, frozen=True):
    """A container, or an init container, and how its last run ended."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ReportedState = ReportedState()
    last_state: ReportedState = ReportedState()


class ReportedCondition(Model, frozen=True):
    """A condition of a pod with its message."""

    type: str = ""
    status: str = ""
    message: str = ""
