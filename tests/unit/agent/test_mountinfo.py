"""/proc/self/mountinfo: fields, escapes, and what is left out."""

import pytest

from agent.kernelcache.content.mountinfo import MountEntry, parse_mountinfo


def test_a_bind_mount_has_the_directory_that_is_mounted():
    line = (
        rb"481 95 259:1 /gkm/content/x/files /var/lib/kubelet/pods/u/mount"
        rb" ro,nosuid shared:7 - ext4 /dev/root rw"
    )
    assert parse_mountinfo(line + b"\n") == (
        MountEntry(root="/gkm/content/x/files", mount_point="/var/lib/kubelet/pods/u/mount"),
    )


def test_blanks_and_backslashes_are_octal():
    line = rb"1 2 0:1 /a\040b\134040 /tab\011x\012y rw - tmpfs none rw"
    assert parse_mountinfo(line) == (MountEntry(root="/a b\\040", mount_point="/tab\tx\ny"),)


def test_a_removed_directory_keeps_its_name():
    (one,) = parse_mountinfo(b"1 2 0:1 /content/x//deleted /t rw - ext4 none rw")
    assert one.root == "/content/x"


def test_bytes_that_are_no_text_do_not_hide_other_mounts():
    content = b"1 2 0:1 /\xff /\xfe rw - ext4 none rw\nnonsense\n\n1 2 0:1 / /b rw - ext4 none rw\n"
    assert [item.mount_point for item in parse_mountinfo(content)] == ["/\udcfe", "/b"]


def test_the_order_is_the_files():
    content = b"".join(b"1 2 0:1 /%d /same rw - ext4 none rw\n" % item for item in range(3))
    assert [item.root for item in parse_mountinfo(content)] == ["/0", "/1", "/2"]


def test_an_overlay_has_its_first_lower_directory():
    line = (
        rb"46 27 0:39 / /pods/u/mount ro,nosuid shared:7 master:1 - overlay overlay"
        rb" ro,lowerdir=/gkm/a\134:b\054c\040d/content/x/files:/proc/self/fd/9,redirect_dir=on"
    )
    (one,) = parse_mountinfo(line)
    assert one == MountEntry(root="/gkm/a:b,c d/content/x/files", mount_point="/pods/u/mount")


@pytest.mark.parametrize(
    "reported",
    [b"- overlay overlay rw", b"- overlay overlay rw,lowerdir=", b"- overlay", b"-", b""],
)
def test_an_overlay_without_lower_directories_is_a_mount_like_others(reported: bytes):
    (one,) = parse_mountinfo(b"46 27 0:39 /x /t rw " + reported)
    assert one == MountEntry(root="/x", mount_point="/t")
