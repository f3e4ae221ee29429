"""Definitions of the next version take what no object of this version has, and their webhook lets it pass."""

import yaml

from manifests.install import webhooks
from manifests.install.crds import build_crds
from manifests.nvidia.operator_crds import build_operator_crds
from tests.fault.steps import NEXT_VERSIONED
from tests.fault.unreadable_objects import FIELDS, NEXT, with_next_values


def test_every_field_that_is_made_unreadable_has_the_value_of_the_next_version():
    manifests = yaml.safe_dump_all([*build_crds(), *build_operator_crds()])
    crds = {
        crd["spec"]["names"]["plural"]: crd
        for crd in yaml.safe_load_all(with_next_values(manifests))
    }
    assert FIELDS.keys() == set(NEXT_VERSIONED)
    for plural, (_, _, field) in FIELDS.items():
        part = crds[plural]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for name in field:
            part = part["properties"][name]
        assert part["enum"][-1] == NEXT
        assert part["enum"].count(NEXT) == 1


def test_webhook_of_pools_is_not_asked_about_pools_of_the_next_version():
    settings = webhooks.WebhookSettings(client=webhooks.UrlClient(base_url="https://127.0.0.1:1"))
    configuration = webhooks.build_validating_configuration(settings)
    (changed,) = yaml.safe_load_all(with_next_values(yaml.safe_dump_all([configuration])))
    added = [
        (webhook["name"], condition["name"])
        for webhook, before in zip(changed["webhooks"], configuration["webhooks"], strict=True)
        for condition in webhook["matchConditions"][len(before["matchConditions"]) :]
    ]
    assert added == [("gpupools.gpu.deckhouse.io", "of-this-version")]
