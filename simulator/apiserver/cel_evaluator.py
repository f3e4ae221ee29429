"""Common Expression Language: compiles and evaluates an expression over JSON values.

Evaluated by Google's implementation with the extensions for optionals and strings, so that match
conditions and CRD rules run as they are rendered. Three things differ from kube-apiserver. Every
variable is dynamically typed, so an expression that only its type check refuses compiles here.
Kubernetes' own functions (`quantity()`, `url()`, `authorizer`) are missing: an expression that
calls one does not compile. Cost is not limited.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings

if TYPE_CHECKING:
    from collections.abc import Mapping

_VARIABLES: Final = ("object", "oldObject", "request", "self", "oldSelf")
_ENVIRONMENT: Final = cel.NewEnv(
    variables=dict.fromkeys(_VARIABLES, cel.Type.DYN),
    extensions=[ext_optional.ExtOptional(), ext_strings.ExtStrings()],
)


class CelError(ValueError):
    """An expression does not compile, or its evaluation fails."""


@lru_cache(maxsize=1024)
def compile_expression(expression: str) -> Any:  # noqa: ANN401  # the library's own type
    """Return the compiled expression.

    Raises:
        CelError: it does not compile.
    """
    try:
        return _ENVIRONMENT.compile(expression)
    except RuntimeError as error:
        raise CelError(f"compilation failed: {error}") from error


def holds(expression: str, variables: "Mapping[str, Any]") -> bool:
    """Return the value of a boolean expression.

    Raises:
        CelError: it does not compile, fails, or has another type.
    """
    value = compile_expression(expression).eval(data=variables)
    if value.type() != cel.Type.BOOL:
        raise CelError(str(value.value()))
    return bool(value.value())
