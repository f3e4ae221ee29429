"""C9: the name of a cache cannot leave a directory, and both scopes stay apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cache_name import MAX_CACHE_NAME_LENGTH, CacheNameError, parse_cache_name


def test_cache_of_a_namespace_and_cluster_cache_of_one_name_are_two():
    ours, cluster = parse_cache_name("ml", "llama"), parse_cache_name("", "llama")
    assert ours != cluster
    assert (str(ours), str(cluster)) == ("GKMCache ml/llama", "ClusterGKMCache llama")


def test_the_longest_name_still_makes_a_finalizer():
    name = "a" * MAX_CACHE_NAME_LENGTH
    assert len(f"gkm.io.{parse_cache_name('', name).name}") == 253
    assert parse_cache_name("n" * 63, "a.b-c.9").name == "a.b-c.9"


PATHS = ["", ".", "..", "a/b", "../a", "a/../../b", "/etc", "a\0"]
OTHER_TEXT = ["A", "a_b", "-a", "a-", "a..b", ".a", "a\n", "é", "a" * (MAX_CACHE_NAME_LENGTH + 1)]


@pytest.mark.parametrize("name", [*PATHS, *OTHER_TEXT])
def test_c9_text_that_is_no_name_is_refused(name):
    with pytest.raises(CacheNameError, match="is no name of a kernel cache: lower-case letters"):
        parse_cache_name("ml", name)


@pytest.mark.parametrize("namespace", [".", "..", "a/b", "a.b", "A", "a\n", " ", "n" * 64])
def test_c9_text_that_is_no_namespace_is_refused(namespace):
    with pytest.raises(CacheNameError, match=r"is no name of a namespace$"):
        parse_cache_name(namespace, "llama")


@given(st.text(alphabet="ab/.-\0", max_size=8), st.text(alphabet="ab/.-\0", max_size=8))
def test_c9_no_name_is_a_path(namespace, name):
    try:
        found = parse_cache_name(namespace, name)
    except CacheNameError:
        return
    assert not {"/", "\0"} & {*found.namespace, *found.name}
    assert not {".", ".."} & {found.namespace, found.name}
