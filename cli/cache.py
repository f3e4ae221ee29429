"""The commands `cache pack`, `cache sign`, `cache verify` and `cache example`: images of compiled kernels, and their signatures."""

# ruff: noqa: PLC0415  # modules of one command are imported when it runs

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from api.text import printable_lines
from cli.command_parser import HELP, PROGRAM, CommandLineError, CommandParser, no_such, print_error
from cli.exit_status import FAILED, MISUSED, OK

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from api.image_reference import ImageReference
    from kernelcache.signatures.policy import SignaturePolicy
    from kernelcache.signatures.signing_keys import SigningKey
    from kernelcache.signatures.trust_root import TrustRoot

_ARCHITECTURES: Final = ("amd64", "arm64")
_ACTIONS: Final = {
    "pack": "a directory of compiled kernels becomes an image in a registry",
    "sign": "an image in a registry gets a signature that cosign and the control plane verify",
    "verify": "say whether the signatures of an image would be accepted",
    "example": "a registry gets a small signed image, and the examples that name it are printed",
}


def run_cache(arguments: "Sequence[str]") -> int:
    """Run the action; return the process's exit status.

    Raises:
        CommandLineError: the flags, or a file that one names, cannot be used.
    """
    action, *remaining = arguments or [""]
    match action:
        case "pack":
            return _pack(pack_parser().parse_flags(remaining))
        case "sign":
            return _sign(sign_parser().parse_flags(remaining))
        case "verify":
            return _verify(verify_parser().parse_flags(remaining))
        case "example":
            return _example(example_parser().parse_flags(remaining))
        case "" | "-h" | "--help":
            _print(_overview())
            return OK if action else MISUSED
        case _:
            raise no_such("action", action, [*_ACTIONS, *HELP], listed_by=f"{PROGRAM} cache --help")


def pack_parser() -> CommandParser:
    """Return the parser of the flags of `cache pack`."""
    from cli.registry_access import add_registry_flags

    parser = CommandParser(
        "cache pack",
        "Pack a directory of compiled kernels into an image, push it, and print its digest.",
        epilog="DIR is Triton's cache (TRITON_CACHE_DIR, ~/.triton/cache) or vLLM's (~/.cache/vllm).\n"
        "The same files give the same digest.",
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="what a compiler has left")
    parser.add_argument(
        "--image", required=True, metavar="REF", help="name of the image, with its registry and tag"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="PATH",
        help="push nothing, and write an OCI layout: a tar (PATH ends in .tar) or a new directory",
    )
    parser.add_argument(
        "--sign-key",
        type=Path,
        metavar="FILE",
        help="sign the pushed image by this private key, as cache sign does",
    )
    parser.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="BACKEND:ARCH:WARP_SIZE",
        help="what the kernels were compiled for, as cuda:90:32; for caches whose files do not say it",
    )
    parser.add_argument(
        "--architecture",
        choices=_ARCHITECTURES,
        default=_ARCHITECTURES[0],
        help=f"CPU of the nodes, for which launchers were compiled ({_ARCHITECTURES[0]})",
    )
    add_registry_flags(parser)
    return parser


def sign_parser() -> CommandParser:
    """Return the parser of the flags of `cache sign`."""
    from cli.registry_access import add_registry_flags

    parser = CommandParser(
        "cache sign",
        "Add a signature to an image in a registry, in both forms that cosign has.",
        epilog="Nothing is added where the key has signed already. The password of an encrypted key is taken\n"
        "from GPU_SIGNING_PASSWORD.",
    )
    parser.add_argument("image", metavar="REF", help="the image, by its tag or, better, its digest")
    parser.add_argument(
        "--key",
        type=Path,
        required=True,
        metavar="FILE",
        help="private key, PEM: ECDSA (P-256, P-384) or RSA (2048 to 8192 bits)",
    )
    add_registry_flags(parser)
    return parser


def verify_parser() -> CommandParser:
    """Return the parser of the flags of `cache verify`."""
    from cli.registry_access import add_registry_flags

    parser = CommandParser(
        "cache verify",
        "Say whether one of these signers has signed an image, as the control plane judges it.",
    )
    parser.add_argument("image", metavar="REF", help="the image, by its tag or its digest")
    parser.add_argument(
        "--key",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="public key, PEM; can be repeated",
    )
    parser.add_argument(
        "--identity",
        nargs=2,
        action="append",
        default=[],
        metavar=("SUBJECT", "ISSUER"),
        help="a signer without a key, as the certificate names it; can be repeated",
    )
    parser.add_argument(
        "--trust-root",
        type=Path,
        metavar="FILE",
        help="Sigstore's trusted root (JSON), whose authorities and logs stand behind identities",
    )
    add_registry_flags(parser)
    return parser


def example_parser() -> CommandParser:
    """Return the parser of the flags of `cache example`."""
    from cli.registry_access import add_registry_flags

    parser = CommandParser(
        "cache example",
        "Push a small kernel cache, sign it, and print the manifests of `render examples` with its name and key.",
        epilog="Its kernels are made up, for devices of each compute capability from 7.5 on: pods can mount it, and no\n"
        "program can run it. Without --sign-key the key is made for this image, and forgotten when it is signed.",
    )
    parser.add_argument(
        "registry",
        metavar="REGISTRY",
        help="host, port and path, as registry.example.com:5000/team",
    )
    parser.add_argument(
        "--sign-key",
        type=Path,
        metavar="FILE",
        help="private key to sign by, where the cluster demands its signature",
    )
    add_registry_flags(parser)
    return parser


def _pack(options: "argparse.Namespace") -> int:
    from api.image_reference import ImageReferenceError, parse_image_reference
    from cli.cache_image import CacheImageRequest, push_cache_image, write_cache_layout
    from cli.registry_access import RegistryAccess
    from kernelcache.image_packing import PackingError, parse_target

    if options.output is not None and options.sign_key is not None:
        raise CommandLineError(
            "--sign-key signs in a registry, and --output pushes nothing: push the layout, then use cache sign"
        )
    try:
        request = CacheImageRequest(
            directory=options.directory,
            reference=parse_image_reference(options.image),
            targets=tuple(map(parse_target, options.target)),
            architecture=options.architecture,
            access=RegistryAccess.of(options),
            signing_key=_signing_key("--sign-key", options.sign_key) if options.sign_key else None,
        )
    except (ImageReferenceError, PackingError) as error:
        raise CommandLineError(str(error)) from error
    if request.reference.digest is not None:
        raise CommandLineError("--image has a digest, which packing only finds out: give a tag")

    def work() -> int:
        if options.output is None:
            digest = push_cache_image(request)
        else:
            digest = write_cache_layout(request, options.output)
        _print(f"{digest}\n")
        return OK

    return _attempt(work, file=options.directory)


def _sign(options: "argparse.Namespace") -> int:
    from cli.cache_signing import sign_image
    from cli.registry_access import RegistryAccess

    reference = _reference(options.image)
    key = _signing_key("--key", options.key)

    def work() -> int:
        signed = sign_image(reference, key, RegistryAccess.of(options))
        is_new = signed.forms.has_added_payload or signed.forms.has_added_bundle
        before = "" if is_new else ", as it was before"
        _print(f"{signed.digest} is signed by key {key.public.fingerprint}{before}\n")
        return OK

    return _attempt(work, file=options.key)


def _verify(options: "argparse.Namespace") -> int:
    from cli.cache_signing import verify_image
    from cli.registry_access import RegistryAccess
    from kernelcache.signatures.verification import SignatureVerified

    reference = _reference(options.image)
    if options.identity and options.trust_root is None:
        raise CommandLineError(
            "--identity needs --trust-root: whose certificates and logs are to be believed?"
        )
    policy = _policy(options)
    trust_root = _trust_root(options.trust_root) if options.trust_root else None

    def work() -> int:
        result = verify_image(
            reference, RegistryAccess.of(options), policy=policy, trust_root=trust_root
        )
        if isinstance(result, SignatureVerified):
            _print(f"{result.message}\n")
            return OK
        print_error(result.message)
        return FAILED

    return _attempt(work, file=options.image)


def _example(options: "argparse.Namespace") -> int:
    from cli.cache_image import CacheImageRequest, push_cache_image
    from cli.registry_access import RegistryAccess
    from kernelcache.signatures.signing_keys import SigningKey
    from manifests.example_files import CACHE_REPOSITORY, all_examples
    from simulator.registry.triton_cache import write_example_cache

    reference = _reference(f"{options.registry}/{CACHE_REPOSITORY}")
    key = _signing_key("--sign-key", options.sign_key) if options.sign_key else SigningKey.new()

    def work() -> int:
        with tempfile.TemporaryDirectory() as folder:
            request = CacheImageRequest(
                directory=write_example_cache(Path(folder)),
                reference=reference,
                targets=(),
                architecture=_ARCHITECTURES[0],
                access=RegistryAccess.of(options),
                signing_key=key,
            )
            push_cache_image(request)
        _print(all_examples(registry=options.registry, public_pem=key.public_pem))
        return OK

    return _attempt(work, file=reference)


def _attempt(work: "Callable[[], int]", *, file: object) -> int:
    """Return the exit status of the work, or of its error, which is complained about."""
    from kernelcache.image_packing import PackingError
    from kernelcache.signatures.image_signing import SignatureListError
    from oci.errors import RegistryError, UnusableCredentials
    from oci.image_layout import LayoutExistsError

    try:
        return work()
    except UnusableCredentials as error:
        raise CommandLineError(str(error)) from error
    except (PackingError, RegistryError, LayoutExistsError, SignatureListError) as error:
        print_error(error)
    except OSError as error:
        print_error(f"{error.filename or file}: {error.strerror or error}")
    return FAILED


def _reference(text: str) -> "ImageReference":
    from api.image_reference import ImageReferenceError, parse_image_reference

    try:
        return parse_image_reference(text)
    except ImageReferenceError as error:
        raise CommandLineError(str(error)) from error


def _signing_key(flag: str, file: Path) -> "SigningKey":
    from kernelcache.signatures.signing_keys import PASSWORD_VARIABLE, SigningKey, SigningKeyError

    try:
        return SigningKey.from_pem(
            _content(flag, file), password=os.environ.get(PASSWORD_VARIABLE, "")
        )
    except SigningKeyError as error:
        raise CommandLineError(f"{flag} {file} is {error}") from error


def _policy(options: "argparse.Namespace") -> "SignaturePolicy":
    from api.kinds.gkmcache import SignerIdentity, Verification
    from kernelcache.signatures.policy import SignaturePolicyError, read_signature_policy
    from kernelcache.signatures.public_keys import PublicKeyError, VerificationKey

    keys: list[str] = []
    for file in options.key:
        try:
            text = _content("--key", file).decode("ascii", "replace")
            VerificationKey.from_pem(text)
        except PublicKeyError as error:
            raise CommandLineError(f"--key {file} is {error}") from error
        keys.append(text)
    identities = [SignerIdentity(subject=item, issuer=issuer) for item, issuer in options.identity]
    if not keys and not identities:
        raise CommandLineError("no signer is given: name at least one with --key or --identity")
    try:
        return read_signature_policy(Verification(keys=keys, identities=identities))
    except SignaturePolicyError as error:
        raise CommandLineError(str(error)) from error


def _trust_root(file: Path) -> "TrustRoot":
    from kernelcache.signatures.trust_root import TrustRootError, read_trust_root

    try:
        return read_trust_root(_content("--trust-root", file))
    except TrustRootError as error:
        raise CommandLineError(f"--trust-root {file}: {error}") from error


def _content(flag: str, file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise CommandLineError(f"{flag} {file}: {error.strerror or error}") from error


def _overview() -> str:
    width = max(map(len, _ACTIONS)) + 2
    lines = "".join(f"  {name:<{width}}{text}\n" for name, text in _ACTIONS.items())
    return (
        f"usage: {PROGRAM} cache ACTION [...]\n\nGPU kernel caches in registries.\n\n{lines}\n"
        f"`{PROGRAM} cache ACTION --help` describes an action.\n"
    )


def _print(text: str) -> None:
    print(printable_lines(text), end="")  # noqa: T201  # the command line
