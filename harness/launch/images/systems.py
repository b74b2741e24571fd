"""Systems and their engines, as their files declare them: parameters, files, components, GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, field_validator, model_validator

from harness.config import NAME_PATTERN, ConfigModel
from harness.containment import inside
from harness.driver.records import Envelope, Scalar, digest
from harness.errors import UsageError, nearest_or_known
from harness.launch.images.asset import Asset
from harness.launch.images.platforms import AMD64, debian, with_platform
from harness.results.schema import VERSION, base_system
from harness.untrusted import ForeignText, to_json

Value = TypeVar("Value")
# A stranger's file may not send the host to any address: other indexes are configured in pip.
INDEX_PATTERN = r"^https://download\.pytorch\.org/whl/[a-z0-9]+$"
# The two tables of a system's parameters.
PARAMETERS = ("build_params", "search_params")
# A joined system stores the parameters of three files, which must stay small against RESULT_BYTES of the reader.
_MOST_STORED_BYTES = 64 << 10
_MOST_PARAMETERS = 500


class NotFor(ConfigModel):
    """A platform that an engine has no image for, with the reason, so that no build has to fail first."""

    platform: Literal["linux/amd64", "linux/arm64"]
    accelerator: Literal["cuda"] | None = Field(
        default=None, description="only the image for GPUs is meant; without this key every image of the engine"
    )
    reason: ForeignText = Field(
        min_length=1, description="why, in a few words: users read it when they ask for that image"
    )


class ServiceSettings(ConfigModel):
    """``[service]`` of ``engine.toml``: a server in a container of its own, whose client is the adapter.

    The engine's ``service.py`` gives the server's command; or the server is a published ``image``, which starts by its
    own entry point.  In ``command`` and ``environment``, ``{cpus}`` and ``{memory_mib}`` are the server's limits.
    """

    port: int = Field(ge=1024, le=65535, description="the server's port, on the loopback interface")
    scheme: Literal["http", "postgresql"] = Field(
        default="http", description="first word of the address that the adapter gets"
    )
    bulk: bool = Field(
        default=True,
        description="the client sends the documents to the server; false: the adapter builds the index in the server's"
        " place, as an engine in the process does",
    )
    writes_index: bool = Field(
        default=False,
        description="the server writes into its index folder while it only answers queries, so each job gets a copy",
    )

    removes: bool = Field(
        default=False,
        description="the adapter removes an index from its service (`remove`), so that `harness attach --build` may"
        " build one there, named by the parameter `index`",
    )

    image: str | None = Field(
        default=None,
        pattern=r"^([a-z0-9][a-z0-9._/:-]*@)?sha256:[0-9a-f]{64}$",
        description="a published image of the server, by its digest: `docker.io/qdrant/qdrant@sha256:...`; without this"
        " key the engine's own image has the server",
    )
    command: tuple[str, ...] = Field(default=(), description="with `image`: the arguments of its entry point")
    environment: dict[str, str] = Field(default={}, description="with `image`: environment variables")
    index_path: str = Field(
        default="/index", pattern=r"^/[A-Za-z0-9._/-]+$", description="with `image`: the folder of its data"
    )
    scratch: tuple[Annotated[str, Field(pattern=r"^/[A-Za-z0-9._/-]+$")], ...] = Field(
        default=(), description="with `image`: further folders that it writes into, kept in memory"
    )
    user: int | None = Field(
        default=None, ge=1, description="with `image`: the uid that it needs, if it does not run as any; never root"
    )

    @model_validator(mode="after")
    def _of_images(self) -> ServiceSettings:
        given = self.model_fields_set & {"command", "environment", "index_path", "scratch", "user"}
        if given and self.image is None:
            raise ValueError(f"{min(given)}: only a published server has it; add image, or remove it")
        return self

    def filled(self, text: str, envelope: Envelope) -> str:
        """Return a text of ``command`` or ``environment`` with the limits in it."""
        return text.replace("{cpus}", str(envelope.cpus)).replace("{memory_mib}", str(envelope.memory_bytes >> 20))

    @property
    def url(self) -> str:
        """The server's address, as its client sees it."""
        return f"{self.scheme}://127.0.0.1:{self.port}"


# Exit code of a `prepare` that needs packages which the lean engine lacks.
WHOLE_ENGINE = 3


class EngineSettings(ConfigModel):
    """The settings of ``engine.toml`` that each system of the engine has."""

    description: ForeignText = Field(description="one line for people")
    extra_indexes: tuple[Annotated[str, Field(pattern=INDEX_PATTERN)], ...] = Field(
        default=(),
        description="PyTorch's own package indexes that are asked as well when the plain download of the lock fails;"
        " others are configured in pip",
    )
    prepare: str | None = Field(
        default=None,
        pattern=r"^[a-z_][a-z0-9_.]*$",
        description="module that makes a system's assets ready when its image is built (converts weights, checks them)",
    )
    prepare_params: tuple[str, ...] = Field(
        default=(), description="parameters of the system that `prepare` reads; they decide the image too"
    )
    prepare_lean: bool = Field(
        default=False,
        description="`prepare` is tried in the image of the stage `lean` first, for systems that `lean_if` names; its"
        " exit code 3 asks for the whole engine",
    )
    lean_if: dict[str, tuple[Scalar, ...]] = Field(
        default={},
        description="parameters, and their values with which prepared files need fewer packages: the image is then made"
        ' from the Dockerfile\'s stage `lean` (build argument STAGE); a missing parameter counts as `""`',
    )
    lean_search_if: dict[str, tuple[Scalar, ...]] = Field(
        default={},
        description="parameters, and their values with which searches need fewer packages than builds: the index is"
        " then built in the system's image, and searched in `<system>-search`, made from the stage `lean`; with GPUs,"
        " one image does both",
    )
    toolchain: bool = Field(
        default=False, description="its Dockerfile compiles: gets a compiler image as the build argument TOOLCHAIN"
    )
    resumable_builds: bool = Field(
        default=False, description="a build that ended early goes on from what it left in the index folder"
    )
    scores: bool = Field(
        default=False, description="scores given documents, so that its systems can be the second of two stages"
    )
    two_stages: bool = Field(
        default=False, description="of its systems' components, the second scores what the first finds"
    )
    cuda: int = Field(
        default=12,
        ge=0,
        description="with GPUs: the release of CUDA whose packages it takes from shared folders; 0: none, its image is"
        " that for CPUs",
    )
    not_for: tuple[NotFor, ...] = Field(
        default=(), description="platforms that it has no image for; it has one for every other"
    )
    image_only: ForeignText | None = Field(
        default=None,
        description="why, in a few words, its systems run in their image alone and not with `--launcher process`",
    )
    service: ServiceSettings | None = Field(
        default=None, description="the engine is a server, and its adapter a client; without this table, a library"
    )
    languages: tuple[str, ...] = Field(
        default=(),
        description="codes of the languages that it has analysers for, its default first; a system whose file sets no"
        " `language` gets the dataset's as a parameter of the build",
    )

    @model_validator(mode="after")
    def _lean_if_prepared(self) -> EngineSettings:
        for key, table in (("lean_if", self.lean_if), ("lean_search_if", self.lean_search_if)):
            if unread := sorted(table.keys() - set(self.prepare_params)):
                raise ValueError(f"{key}: {unread[0]} is not in prepare_params, which decide the image")
            if table and not self.prepare:
                raise ValueError(f"{key}: only files that `prepare` makes ready go into a lean image; name it")
        if self.prepare_lean and not self.lean_if:
            raise ValueError("prepare_lean: lean_if names no system that has a lean image; add it, or remove this")
        return self


LANGUAGE = "language"


def version_lock(usual: Path, version: str) -> str:
    """Return the name of a version's lock: ``requirements@old.lock`` in place of ``requirements.lock``."""
    return f"{usual.stem}{VERSION}{version}{usual.suffix}"


class EngineFile(EngineSettings):
    """``images/<engine>/engine.toml``."""

    assets: tuple[Asset, ...] = Field(default=(), description="files that all systems of the engine share")
    shared: tuple[Annotated[str, Field(pattern=NAME_PATTERN)], ...] = Field(
        default=(),
        description="code that engines share: folders of `images/shared/`, put into /opt/shared; the PyPI packages that"
        " a folder pins in its own `requirements.lock` come into the build as `packages/<folder>`, Debian's, which it"
        " pins in `packages-amd64.lock`, as `packages/<folder>/debs`, and the stages of its `stages.Dockerfile` before"
        " the engine's own",
    )

    @field_validator("assets")
    @classmethod
    def _all_pinned(cls, value: tuple[Asset, ...]) -> tuple[Asset, ...]:
        if any(asset.unpinned for asset in value):
            raise ValueError(
                "an engine's assets must be pinned, because all its systems share them: give sha256, not files"
            )
        return value


class SystemSettings(ConfigModel):
    """The settings of a system's file that hold for its components too."""

    description: ForeignText = Field(description="one line for people")
    fewer_hits_ok: bool = Field(
        default=False, description="may return fewer than k hits (lexical systems return only documents that match)"
    )
    result_cache: bool = Field(
        default=False,
        description="keeps answers of earlier queries on purpose; undeclared, a cache makes results noisy",
    )
    build_params: dict[str, Scalar] = Field(default={}, description="adapter parameters that shape the index")
    search_params: dict[str, Scalar] = Field(default={}, description="adapter parameters of the search alone")
    with_gpus: dict[str, Scalar] = Field(
        default={},
        description="other values of parameters with GPUs: of a build parameter where the index is built with GPUs, of"
        " a search parameter where it is searched with GPUs; a value that a suite or a joining system sets stays",
    )
    assets: tuple[Asset, ...] = Field(default=(), description="files of this system alone: its weights")
    stand_in: ForeignText | None = Field(
        default=None,
        description="what the checkpoint is, where it is not the published one; tables mark the system",
    )


class SystemFile(SystemSettings):
    """``images/<engine>/systems/<system>.toml``."""

    components: tuple[str, ...] = Field(
        default=(),
        description="the two systems that this one joins in one envelope, for an engine that fuses rankings; their"
        " parameters are its own under `<component>.<name>`",
    )

    @model_validator(mode="after")
    def _with_gpus_known(self) -> SystemFile:
        if unknown := sorted(self.with_gpus.keys() - {*self.build_params, *self.search_params}):
            raise ValueError(f"with_gpus: {unknown[0]} is in neither build_params nor search_params; add it there")
        return self

    @model_validator(mode="after")
    def _storable(self) -> SystemFile:
        # Each result holds them.
        stored = to_json([self.build_params, self.search_params, self.with_gpus, self.stand_in]).encode()
        if len(stored) > _MOST_STORED_BYTES:
            size = f"{len(stored):,} bytes; the limit is {_MOST_STORED_BYTES:,}"
            raise ValueError(f"its parameters and stand_in take {size}; put large values into an asset")
        for name in ("build_params", "search_params"):
            if (number := len(getattr(self, name))) > _MOST_PARAMETERS:
                raise ValueError(f"{name} has {number:,} keys; the limit is {_MOST_PARAMETERS}; put more into an asset")
        return self

    def pins(self, known: SystemFile) -> bool:
        """Check that this file differs from ``known`` only by pinning its unpinned weights."""
        if not any(asset.unpinned for asset in known.assets):
            return False
        pins = {"assets": {"__all__": {"revision", "sha256", "files"}}}
        return self.model_dump(exclude=pins) == known.model_dump(exclude=pins) and all(
            set(mine.names) == set(theirs.names) for mine, theirs in zip(self.assets, known.assets, strict=True)
        )


class System(SystemSettings, EngineSettings):
    """A system that can be measured: its engine's folder, parameters, assets and components.

    ``file`` declares it.  ``platform`` is its image's platform, which the launcher sets; ``on_platform`` is set instead
    in a run for other machines.  ``variant_of`` names the system whose image it has, with other parameters; ``swept``
    are all values of the parameters that ``prepare`` reads.  ``search_only``: its image has only what searches need.
    ``first_use`` names the files that a run pinned at their first use, and their commits.  A version of a system
    (``tantivy@old``) has packages of its own, whose locks are in ``version_dir``.
    """

    name: str
    file: Path
    engine: str
    engine_dir: Path
    engine_assets: tuple[Asset, ...]
    shared: tuple[Path, ...] = ()
    components: tuple[System, ...] = ()
    accelerator: Literal["cuda"] | None = None
    platform: str = AMD64
    variant_of: str | None = None
    swept: dict[str, tuple[Scalar, ...]] = Field(default={})
    search_only: bool = False
    on_platform: str | None = None
    first_use: tuple[str, ...] = ()
    version_dir: Path | None = None

    @property
    def parts(self) -> tuple[System, ...]:
        """The system itself and its components."""
        return (self, *self.components)

    @property
    def lock(self) -> Path:
        """The package lock of its engine, for its platform or accelerator if there is one."""
        usual = self._lock(self.engine_dir)
        return usual if self.version_dir is None else self.version_dir / version_lock(usual, self.version)

    @property
    def version(self) -> str:
        """The name of its version: ``old`` of ``tantivy@old``; empty: it has the packages that its engine pins."""
        return self.name.partition(VERSION)[2]

    @property
    def base_name(self) -> str:
        """The name of the system that it is a variant or a version of; its own name if it is neither."""
        return base_system(self.variant_of or self.name)

    def at_version(self, version: str, find: Callable[[System, str], Path]) -> System:
        """Return the system with the packages that the locks of a version pin.

        Args:
            version: its name.
            find: returns the folder of the version's locks.

        Raises:
            UsageError: it joins others, whose packages are several; or as ``find``.
        """
        name = f"{self.name}{VERSION}{version}"
        if self.components:
            joined = " and ".join(part.name for part in self.components)
            raise UsageError(f"{name}: {self.name} joins {joined}; name a version of one of those")
        return self.model_copy(update={"name": name, "version_dir": find(self, version)})

    @property
    def shared_locks(self) -> dict[str, Path]:
        """The package locks of its shared code, by folder name; most shared folders have none."""
        with_packages = (folder for folder in self.shared if inside(folder, "requirements.lock").is_file())
        return {folder.name: self._lock(folder) for folder in with_packages}

    def _lock(self, folder: Path) -> Path:
        able = [f"requirements-{self.accelerator}{self.cuda}"] if self.accelerator else []
        names = [name for base in (*able, "requirements") for name in (f"{base}-{debian(self.platform)}", base)]
        paths = [inside(folder, f"{name}.lock") for name in names]
        return next((path for path in paths if path.is_file()), paths[-1])

    @property
    def debian_locks(self) -> dict[str, Path]:
        """The locks of Debian's packages that its shared code pins for its platform, by folder name; few have one."""
        name = f"packages-{debian(self.platform)}.lock"
        paths = ((folder.name, inside(folder, name)) for folder in self.shared)
        return {folder: path for folder, path in paths if path.is_file()}

    @property
    def image(self) -> str:
        """The name of its image; one for an accelerator or for searches alone, also a component's, has its own name."""
        able = next((part.accelerator for part in self.parts if part.accelerator), None)
        search = "search" if any(part.search_only for part in self.parts) else None
        name = "-".join(each for each in (self.variant_of or self.name, able, search) if each)
        # The name of an image may not contain the sign.
        return with_platform(name.replace(VERSION, "__"), self.on_platform or AMD64)

    @property
    def engine_image(self) -> str:
        """The name of its engine's image."""
        name = f"{self.engine}__{self.version}" if self.version else self.engine
        return f"{name}-{self.accelerator}" if self.accelerator else name

    @property
    def lean(self) -> bool:
        """True if its image has only those packages of its engine that prepared files need."""
        return self.search_only or self._has_all(self.lean_if)

    def _has_all(self, able: Mapping[str, tuple[Scalar, ...]]) -> bool:
        """Return whether every value of these parameters is among those listed; False without prepared files."""
        if not (able and self.assets) or self.accelerator:
            return False
        values = {name: self.swept.get(name, (self.params.get(name, ""),)) for name in able}
        return all(set(values[name]) <= set(enough) for name, enough in able.items())

    def vary(self, name: str, params: Mapping[str, Scalar], grid: Mapping[str, tuple[Scalar, ...]]) -> System:
        """Return the system under another name, with other values of some parameters, its components' among them.

        Args:
            grid: all values of the parameters; one image is made ready for all of them.

        Raises:
            UsageError: it has no such parameter.
        """
        return self.with_params(params, place=f"[sweep.{self.name}]: ").model_copy(
            update={
                "name": name,
                "variant_of": self.name,
                "swept": {key: values for key, values in grid.items() if key in self.prepare_params},
                "components": tuple(_varied_component(part, params, grid) for part in self.components),
            }
        )

    def with_params(self, params: Mapping[str, Scalar], *, place: str = "") -> System:
        """Return the system with other values of some parameters, with GPUs too.

        Args:
            params: the values by name.
            place: begins the message of an error.

        Raises:
            UsageError: it has no such parameter.
        """
        for key in params:
            if key not in self.params:
                hint = nearest_or_known(key, self.params, label="it has")
                raise UsageError(f"{place}{self.name} has no parameter {key!r}{hint}")
        changed = {kind: _changed(getattr(self, kind), params) for kind in PARAMETERS}
        with_gpus = {key: value for key, value in self.with_gpus.items() if key not in params}
        return self.model_copy(update={**changed, "with_gpus": with_gpus})

    def for_job(
        self,
        kind: Literal["build", "search"],
        *,
        gpus: int = 0,
        build_gpus: int | None = None,
        language: str | None = None,
        platform: str | None = None,
    ) -> System:
        """Return the system as a job uses it, with its parameters, packages and image there.

        Args:
            kind: a search has no packages that builds alone need, unless it has GPUs.
            gpus: of the envelope that the job runs in.
            build_gpus: of the envelope that builds its index; ``gpus`` if not given.
            language: code of the dataset's language, or None.
            platform: of the image in a run for other machines (``linux/arm64``); None: the launcher's.

        Raises:
            UsageError: it, or a component, has no analyser for the language.
        """
        # The packages of a search depend on its GPUs.
        builds_on = gpus if build_gpus is None else build_gpus
        able = self._set_language(language).each_part(lambda part: part._on_gpus(gpus, builds_on))
        search = kind == "search"
        return able.each_part(
            lambda part: {"search_only": search and part._needs_search_only(), "on_platform": platform}
        )

    def for_platform(self, platform: str, *, all_packages: bool = False) -> System:
        """Return the system on the platform (``linux/arm64``) of a launcher; it may need one image for all jobs."""
        changed: dict[str, object] = {"platform": platform, **({"search_only": False} if all_packages else {})}
        return self.each_part(lambda _: changed)

    def _set_language(self, language: str | None) -> System:
        """Take the analysers of a dataset's language, unless the system's file names another."""
        own = {LANGUAGE: language} if language and self._follows(language) else {}
        parts = tuple(part._set_language(language) for part in self.components)
        theirs = {
            f"{part.name}.{LANGUAGE}": part.build_params[LANGUAGE] for part in parts if LANGUAGE in part.build_params
        }
        return self.model_copy(update={"build_params": {**self.build_params, **own, **theirs}, "components": parts})

    def _follows(self, language: str) -> bool:
        """Return whether the dataset's language is a parameter here; the default needs none."""
        if not self.languages or LANGUAGE in self.build_params or language == self.languages[0]:
            return False
        if language not in self.languages:
            known = ", ".join(self.languages)
            raise UsageError(f"{self.name} has no analyser for {language!r}; it has {known}: set one in `languages`")
        return True

    def _on_gpus(self, gpus: int, build_gpus: int) -> dict[str, object]:
        """Return the parameters with GPUs, and whether the engine has packages for them."""
        changed: dict[str, object] = {}
        for kind, count in zip(PARAMETERS, (build_gpus, gpus), strict=True):
            if count:
                changed[kind] = _changed(getattr(self, kind), self.with_gpus)
        if gpus:
            lock = f"requirements-cuda{self.cuda}.lock"
            able = any((folder / lock).is_file() for folder in (self.engine_dir, *self.shared))
            changed["accelerator"] = "cuda" if able else None
        return changed

    def _needs_search_only(self) -> bool:
        """Return whether searches need fewer packages than builds, for which it has another image."""
        return self._has_all(self.lean_search_if) and not self._has_all(self.lean_if)

    def each_part(self, change: Callable[[System], dict[str, object]]) -> System:
        """Return the system with changed fields, its own and each component's."""
        components = tuple(part.each_part(change) for part in self.components)
        return self.model_copy(update={**change(self), "components": components})

    @property
    def lacking(self) -> str | None:
        """The reason, in one line, why it or a component has no image for its platform and GPUs, or None."""
        for part in self.parts:
            for missing in part.not_for:
                if missing.platform == part.platform and missing.accelerator in (None, part.accelerator):
                    kind = " for GPUs" if missing.accelerator else ""
                    return f"engine {part.engine!r} has no {part.platform} image{kind}: {missing.reason}"
        releases = {part.cuda for part in self.components if part.accelerator}
        if len(releases) > 1:
            named = ", ".join(f"{part.name} {part.cuda}" for part in self.components)
            return f"its components need different releases of CUDA ({named}), and an image has one"
        return None

    @property
    def params(self) -> dict[str, Scalar]:
        """All parameters of the adapter."""
        return {**self.build_params, **self.search_params}

    def service_url(self, kind: str) -> str | None:
        """The address of its server in a job of this kind, ``build`` or ``search``; None: no server takes part."""
        asked = self.service is not None and (self.service.bulk or kind == "search")
        return self.service.url if self.service is not None and asked else None

    @property
    def build_inputs(self) -> str:
        """Digest of what its index is built with: systems of one engine with the same weights share their indexes."""
        assets = [asset.model_dump(mode="json", exclude={"licence"}) for asset in self.assets]
        prepared = self.prepared_with if assets else {}
        parts = [part.build_inputs for part in self.components]
        versioned = [self.version] if self.version else []
        return digest([self.engine, self.accelerator, assets, prepared, parts, self.build_params, *versioned])

    @property
    def models(self) -> tuple[str, ...]:
        """The models of its parts on the hub, as ``name@revision``."""
        assets = [asset for part in self.parts for asset in part.assets if asset.hub]
        named = (f"{asset.hub}@{asset.revision}" if asset.revision else f"{asset.hub}" for asset in assets)
        return tuple(dict.fromkeys(named))

    @property
    def unpinned(self) -> tuple[str, ...]:
        """The names of itself and its components with files without a checksum."""
        return tuple(part.name for part in self.parts if any(asset.unpinned for asset in part.assets))

    @property
    def pinned_at_first_use(self) -> ForeignText | None:
        """The files of itself and its components that a run pinned at their first use, or None."""
        pinned = dict.fromkeys(text for part in self.parts for text in part.first_use)
        return ForeignText("; ".join(pinned)) if pinned else None

    @property
    def prepared_with(self) -> dict[str, Scalar | tuple[Scalar, ...]]:
        """The parameters that ``prepare`` reads; one that is swept has all its values."""
        return {name: self.swept.get(name, value) for name, value in self.params.items() if name in self.prepare_params}


def _changed(own: Mapping[str, Scalar], given: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return parameters with the given values of those among them."""
    return {key: given.get(key, value) for key, value in own.items()}


def of_component(name: str, values: Mapping[str, Value]) -> dict[str, Value]:
    """Return a component's share of a joined system's parameters, by their own names."""
    start = f"{name}."
    return {key.removeprefix(start): value for key, value in values.items() if key.startswith(start)}


def _varied_component(part: System, params: Mapping[str, Scalar], grid: Mapping[str, tuple[Scalar, ...]]) -> System:
    """Return a component with its share of a swept system's parameters."""
    own = of_component(part.name, params)
    return part.vary(part.name, own, of_component(part.name, grid)) if own else part
