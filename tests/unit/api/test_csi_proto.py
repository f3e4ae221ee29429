"""Our part of CSI's messages has the names, field numbers and types of the specification."""

import json

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from api.csi.proto import csi_pb2
from tests.support.published_csi import FACTS, SOURCE, facts_of


def test_every_name_is_in_the_specifications_own_file():
    ours = FileDescriptorProto()
    csi_pb2.DESCRIPTOR.CopyToProto(ours)
    facts, theirs = facts_of(ours), json.loads(FACTS.read_text(encoding="utf-8"))
    assert theirs["source"] == SOURCE
    assert facts["package"] == theirs["package"]
    assert len(facts["numbers"]) > 20
    assert facts["numbers"].items() <= theirs["numbers"].items()
