"""Rules of the API server on kernel caches; what needs the object's former state is admission's."""

from typing import Final

from api.cache_name import MAX_CACHE_NAME_LENGTH
from api.crd.cel_rule import CelRule

CACHE_RULES: Final = (
    CelRule(
        expression=f"self.metadata.name.size() <= {MAX_CACHE_NAME_LENGTH}",
        message=f"metadata.name is longer than {MAX_CACHE_NAME_LENGTH} characters, so that the finalizer"
        " gkm.io.<name>/finalizer would exceed what Kubernetes accepts; choose a shorter name",
    ),
)

VERIFICATION_RULES: Final = (
    CelRule(
        expression="(has(self.keys) && self.keys.size() > 0)"
        " || (has(self.identities) && self.identities.size() > 0)",
        message="verification accepts no signature: name a key or an identity, or remove verification"
        " for the cluster's default",
        field="keys",
        reason="FieldValueRequired",
    ),
)
