"""Where the objects of an informer go: `kube.informer` calls it, stores and sinks of controllers implement it."""

from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from api.meta import ObjectMeta

T_contra = TypeVar("T_contra", contravariant=True)


class KubeObject(Protocol):
    """What an informer needs to know of its items."""

    @property
    def metadata(self) -> "ObjectMeta":
        """Return the object's metadata, with its resourceVersion."""


class Sink(Protocol[T_contra]):
    """Where an informer's items go; plain calls, never concurrent, and whatever they raise is fatal.

    Calls may repeat: an upsert of what is known, a discard of what is not.
    """

    def replace_all(self, items: "Sequence[T_contra]") -> None:
        """Take these as all that there are; whatever is missing was deleted unseen."""

    def upsert(self, item: T_contra) -> None:
        """Take the item as the present state of its object."""

    def discard(self, item: T_contra) -> None:
        """Forget the object; the item is its last state."""


@runtime_checkable
class SteppingSink(Sink[T_contra], Protocol[T_contra]):
    """A sink that takes over a full list without keeping everybody waiting."""

    def replace_in_steps(self, items: "Sequence[T_contra]") -> "Iterator[None]":
        """Do what `replace_all` does, in steps of a millisecond or two; each leaves a valid state.

        Between two steps some objects are as listed and others as they were known before.
        """


@runtime_checkable
class ListingSink(Protocol):
    """A sink to which other reads of the same objects go as well; it must tell older from newer."""

    def list_begins(self) -> None:
        """Note that a LIST is asked for. It is handed over later, unless another one begins."""

    def list_ends(self, version: str) -> None:
        """Note that the LIST is complete: what is handed over next is all there was at the version."""
