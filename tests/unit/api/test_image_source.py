"""Resolution of images, as NVIDIA's GPU Operator resolves them."""

import pytest

from api.image_source import ImageSource, ImageSourceError, resolve_image


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(
            ImageSource(image="registry.example.com/dcgm:4.2"),
            "registry.example.com/dcgm:4.2",
            id="whole reference",
        ),
        pytest.param(
            ImageSource(repository="registry.example.com/nvidia", image="dcgm", version="4.2"),
            "registry.example.com/nvidia/dcgm:4.2",
            id="tag",
        ),
        pytest.param(
            ImageSource(
                repository="registry.example.com/nvidia/", image="dcgm", version="sha256:0a"
            ),
            "registry.example.com/nvidia/dcgm@sha256:0a",
            id="digest",
        ),
        pytest.param(ImageSource(), "ours:1", id="nothing given"),
    ],
)
def test_image_is_resolved(source: ImageSource, expected: str):
    assert resolve_image(source, field="bootstrap.dcgm.image", default="ours:1") == expected


@pytest.mark.parametrize(
    ("source", "field"),
    [
        (ImageSource(repository="r", image="dcgm"), "version"),
        (ImageSource(image="dcgm", version="1"), "repository"),
        (ImageSource(repository="r", version="1"), "image"),
        (ImageSource(repository="r"), "image"),
        (ImageSource(version="1"), "repository"),
    ],
)
def test_half_an_image_is_refused_with_the_name_of_the_field(source: ImageSource, field: str):
    with pytest.raises(ImageSourceError, match=rf"bootstrap\.dcgm\.image\.{field} is empty"):
        resolve_image(source, field="bootstrap.dcgm.image", default="ours:1")


def test_no_image_at_all_is_refused_with_the_cure():
    with pytest.raises(
        ImageSourceError, match=r"^bootstrap\.gfd\.image: .* set image to the whole reference"
    ):
        resolve_image(ImageSource(), field="bootstrap.gfd.image")
