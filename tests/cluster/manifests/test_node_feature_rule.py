"""The NodeFeatureRule on a real API server, with the definition that NFD publishes."""

from typing import TYPE_CHECKING

from manifests.install.node_feature_rule import build_node_feature_rule
from manifests.yaml import render
from tests.cluster.environment import definitions
from tests.support.published_crds import published_crd

if TYPE_CHECKING:
    from tests.cluster.environment.kubectl import Kubectl

CRD = "nodefeaturerules.nfd.k8s-sigs.io"


async def test_strict_validation_accepts_the_rule(kubectl: "Kubectl"):
    definition = published_crd(CRD)
    await kubectl("apply", "--server-side", "-f", "-", stdin=render([definition]))
    await definitions.until_served(kubectl, [definition])
    rule = render([build_node_feature_rule()])
    await kubectl("apply", "--server-side", "--validate=strict", "-f", "-", stdin=rule)
    await kubectl("delete", f"crd/{CRD}")
