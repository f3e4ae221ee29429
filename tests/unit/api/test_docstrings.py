"""Descriptions are what the source says."""

from api.crd import docstrings
from api.kinds.gpupool import Access, ReservationPolicy, WhenExhausted
from api.meta import Condition, Model


def test_description_of_a_class_is_its_own_docstring():
    class Undocumented(Model, frozen=True):
        pass

    assert docstrings.class_description(Condition) == "`metav1.Condition`."
    assert docstrings.class_description(Undocumented) == ""


def test_docstring_under_a_field_describes_it():
    assert docstrings.field_descriptions(ReservationPolicy) == {"ttl": "Time from 5s to 1h."}


def test_docstring_under_an_enum_member_describes_it():
    described = docstrings.field_descriptions(WhenExhausted)
    assert described["REJECT"] == "Deny the pod, with the figures."


def test_lines_are_joined():
    assert "\n" not in docstrings.field_descriptions(Access)["groups"]


def test_class_from_elsewhere_has_no_descriptions():
    assert docstrings.field_descriptions(int) == {}
