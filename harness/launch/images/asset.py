"""Files that an image needs besides its packages, as the files of systems and engines declare them."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import Field, field_validator, model_validator

from harness.config import NAME_PATTERN, ConfigModel
from harness.containment import is_plain_name
from harness.launch.images import locks, registry
from harness.results.pin_lock import HUB_PATTERN, REVISION_PATTERN, Sha256
from harness.untrusted import ForeignText

PACKAGE_PATTERN = rf"^{locks.NAME}=={locks.VERSION}$"


class Asset(ConfigModel):
    """Files that an image needs besides its Python packages (weights, jars), each pinned by sha256.

    They come from the model hub at ``revision``, else from a local models folder, else from inside the PyPI
    distribution ``package``.  ``files`` names files without a checksum: such an asset is unpinned, and a run pins it at
    its first use (:mod:`harness.launch.images.first_use`).
    """

    folder: str = Field(pattern=NAME_PATTERN, description="folder under /opt/assets that the files go to")
    licence: ForeignText = Field(
        description="SPDX id of the files' licence; NOASSERTION where the publisher names none"
    )
    hub: str | None = Field(default=None, pattern=HUB_PATTERN, description="model id on the hub")
    revision: str | None = Field(default=None, pattern=REVISION_PATTERN, description="commit on the hub")
    package: str | None = Field(
        default=None, pattern=PACKAGE_PATTERN, description="PyPI project and version that carries the files"
    )
    package_sha256: Sha256 | None = Field(default=None, description="of the distribution's file, which it identifies")
    package_folder: str | None = Field(default=None, description="folder of the files in the distribution")
    sha256: dict[str, Sha256] = Field(default={}, description="file name -> sha256")
    files: tuple[str, ...] = Field(
        default=(), description="names of files without a checksum yet: a run pins them at their first use"
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its files, pinned or not."""
        return (*self.sha256, *self.files)

    @property
    def unpinned(self) -> bool:
        """True if a file has no checksum yet."""
        return bool(self.files)

    @property
    def distribution(self) -> registry.Distribution | None:
        """The distribution that carries its files, if one does."""
        if self.package is None or self.package_sha256 is None:
            return None
        project, _, version = self.package.partition("==")
        return registry.Distribution(project, version, self.package_sha256)

    def pinned(self, revision: str | None, sha256: dict[str, str]) -> Asset:
        """Return the asset with checksums, and the hub's commit if known."""
        return Asset.model_validate({**self.model_dump(), "revision": revision, "sha256": sha256, "files": ()})

    @field_validator("sha256", "files", "package_folder")
    @classmethod
    def _plain_names(cls, value: Collection[str] | str | None) -> Collection[str] | str | None:
        for name in [value] if isinstance(value, str) else value or ():
            if not is_plain_name(name):
                raise ValueError(f"{name[:80]!r} is not a plain name inside the folder; correct it")
        return value

    @model_validator(mode="after")
    def _named_once(self) -> Asset:
        if not self.names or len(set(self.names)) < len(self.names):
            raise ValueError("each file is named once: in sha256 with its checksum, or in files without one")
        return self

    @model_validator(mode="after")
    def _pinned_package(self) -> Asset:
        if self.package is not None and self.package_sha256 is None:
            raise ValueError("a package needs the package_sha256 of its file, which identifies it; add it")
        return self


def checksums(assets: tuple[Asset, ...]) -> dict[str, str]:
    """Map the pinned files of assets, by their path, to their sha256."""
    return {f"{asset.folder}/{name}": sha256 for asset in assets for name, sha256 in asset.sha256.items()}
