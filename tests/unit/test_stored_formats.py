"""What the control plane stores for its own later or earlier versions is read for good: `tests/data/stored/<version>`.

Each folder has what a release wrote into annotations, status, its term and the store of kernel caches. It is never edited.
A reader also takes fields that it does not know, and values where they decide nothing.
"""

import base64
import datetime as dt
import hashlib
import hmac
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from admission.pods.signature import is_signed
from agent.kernelcache.content.store_layout import make_directories, read_store
from api.annotations import decode_reservation
from api.cache_name import CacheName
from api.driver_upgrade import UPGRADE_RECORD_ANNOTATION, UPGRADE_STATE_LABEL, UpgradeState
from api.image_reference import Digest
from api.kinds.autoscaling import AutoscalingStatus
from api.kinds.leadershipterm import GPUControlPlaneTerm
from api.names import NodeName
from autoscaling.device_hours import advanced, totals_from, usage_statuses
from autoscaling.device_use import DeviceUse, UsageSample
from autoscaling.nodes_per_hour import counted_from
from autoscaling.shape_history import history_from
from operands.nvidia.deploy_record import parse_record
from operands.upgrade.facts import UpgradeNode
from operands.upgrade.reasons import UpgradeReason
from operands.upgrade.record import UpgradeRecord, read_record
from tests.support.builders import a_demand

RELEASES = sorted((Path(__file__).parents[1] / "data" / "stored").iterdir())
AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DIGEST = Digest("sha256:" + "a" * 64)
LATER = {"unheardOf": {"x": 1}}
of_each_release = pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
as_written_or_later = pytest.mark.parametrize("later", [{}, LATER], ids=["as written", "later"])


def written(release: Path, file: str, later: dict[str, Any]) -> str:
    text = (release / file).read_text(encoding="utf-8").removesuffix("\n")
    return json.dumps({**json.loads(text), **later}) if later else text


class KnownKey:
    """Signs as `server.reservations.signer`, with the key of the stored reservation."""

    def sign(self, content: bytes) -> str:
        digest = hmac.digest(b"k" * 32, content, hashlib.sha256)[:16]
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


@of_each_release
def test_the_signature_of_a_reservation(release: Path):
    text = written(release, "reservation.json", {})
    context: Any = KnownKey()
    assert is_signed(text, a_demand(1), namespace="team-a", context=context)
    assert not is_signed(text, a_demand(2), namespace="team-a", context=context)
    assert decode_reservation(text) is not None


@of_each_release
@as_written_or_later
def test_the_record_of_a_drivers_upgrade(release: Path, later: dict[str, Any]):
    node = UpgradeNode(
        name=NodeName("n1"),
        labels={UPGRADE_STATE_LABEL: UpgradeState.UPGRADE_FAILED.value},
        annotations={UPGRADE_RECORD_ANNOTATION: written(release, "upgrade-record.json", later)},
    )
    found = read_record(node, AT)
    assert found.is_written
    assert found.record == UpgradeRecord(
        UpgradeState.UPGRADE_FAILED,
        AT,
        attempt=4,
        reason=UpgradeReason.FAILED,
        message="m",
        revision="r7",
        digest="d1",
        replaces="uid-1",
    )


@of_each_release
def test_the_record_of_deploy_labels(release: Path):
    text = written(release, "deploy-record.txt", {})
    assert parse_record(text) == {
        "nvidia.com/gpu.deploy.driver": "true",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/mig.config": "all-disabled",
    }


@of_each_release
@as_written_or_later
def test_what_a_pool_keeps_of_its_autoscaling(release: Path, later: dict[str, Any]):
    text = written(release, "autoscaling.json", later)
    status = msgspec.json.decode(text, type=AutoscalingStatus)
    # No field was ignored.
    assert {**json.loads(msgspec.json.encode(status)), **later} == json.loads(text)
    totals = totals_from(status, AT + dt.timedelta(hours=1))
    assert totals.spent_micro == 3_250_000
    assert totals.device_ms == {DeviceUse.BUSY: 5_400_000}
    assert totals.other is not None
    assert counted_from(status.nodes_of_last_hour) == {"uid-c1": AT}
    (history,) = history_from(status.shapes)
    assert (history.failures, history.excluded_at) == (2, 4)


@of_each_release
@as_written_or_later
def test_the_term_of_a_leader(release: Path, later: dict[str, Any]):
    term = msgspec.json.decode(written(release, "term.json", later), type=GPUControlPlaneTerm)
    assert (term.spec.holder, term.spec.number) == ("replica-1", 3)


@of_each_release
@pytest.mark.parametrize("later", [{}, LATER | {"type": "of-the-next-version"}])
def test_the_store_of_kernel_caches(release: Path, later: dict[str, Any], tmp_path: Path):
    make_directories(tmp_path)
    content = tmp_path / "content" / DIGEST.replace(":", "-")
    (content / "files").mkdir(parents=True)
    (content / "content.json").write_text(written(release, "content.json", later), encoding="utf-8")
    shutil.copy(release / "names.json", tmp_path)
    found = read_store(tmp_path)
    assert not found.damaged
    stored = found.contents[DIGEST]
    assert (stored.size_bytes, stored.disk_bytes, stored.files) == (5, 8192, 2)
    assert stored.has_shared_objects
    assert stored.extracted_at == AT
    assert found.names == {
        CacheName(namespace="", name="shared"): DIGEST,
        CacheName(namespace="team", name="llama"): DIGEST,
    }


def test_a_name_that_cannot_be_read_takes_no_other_with_it(tmp_path: Path):
    make_directories(tmp_path)
    content = tmp_path / "content" / DIGEST.replace(":", "-")
    (content / "files").mkdir(parents=True)
    shutil.copy(RELEASES[-1] / "content.json", content)
    entries = [{"namespace": "..", "name": "x", "digest": DIGEST}]
    entries.append({"namespace": "team", "name": "llama", "digest": DIGEST})
    (tmp_path / "names.json").write_text(json.dumps(entries), encoding="utf-8")
    assert read_store(tmp_path).names == {CacheName(namespace="team", name="llama"): DIGEST}


def test_money_of_a_use_of_the_next_version_stays_spent():
    text = (RELEASES[-1] / "autoscaling.json").read_text(encoding="utf-8")
    status = msgspec.json.decode(text.replace('"busy"', '"parked"'), type=AutoscalingStatus)
    totals = totals_from(status, AT + dt.timedelta(hours=1))
    later = advanced(totals, UsageSample(devices={}, micro={}), AT + dt.timedelta(hours=2))
    assert later.spent_micro == 3_250_000
    current = {usage.state: usage.cost for usage in usage_statuses(later)}
    assert current["parked"] == "3.25"
    assert {use.value for use in DeviceUse} == current.keys() - {"parked"}
