# No logic here: each target is one command.
PYTHON ?= python3
BIN := .venv/bin
# Where this is set, each of the many processes would compile its modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo reference small rerank long-documents debias engines-large late-interaction images test quick soak check bench bench-reprice bench-frechet frechet docs figures format lock ready engine

# The main job, end to end: two real systems on a real collection.
demo: ready
	scripts/with-engine $(BIN)/harness run suites/quickstart.toml

# The measured result that ships (results/published/quickstart), measured again; on a machine that does nothing else.
reference: ready
	scripts/with-engine scripts/reference

# Table 3 of Santhanam et al. 2023 in small: six systems over checkpoints trained on the spot.
small: ready
	scripts/with-engine scripts/small

# BM25 alone and before three rerankers at three depths; with a model hub, `make rerank REAL=1` takes the real cross-encoder.
rerank: ready
	REAL=$(REAL) scripts/with-engine scripts/rerank

# Rerankers that read on after the first tokens, where the relevant passage stands far from the start, and where it is first.
long-documents: ready
	scripts/with-engine scripts/long-documents

# Training on original and on shuffled documents, measured on both: Table 2 of the positional-bias study in small.
debias: ready
	scripts/with-engine scripts/debias

# The engines of 2022 beside those that have overtaken them, on 100,000 documents; some 20 minutes on two CPUs.
engines-large: ready
	scripts/with-engine scripts/engines-large

# PLAID, DESSERT and MUVERA beside exact MaxSim, over a checkpoint trained on the spot.
late-interaction: ready
	scripts/with-engine scripts/late-interaction

# The image of every engine, without any system's weights.
images: ready
	scripts/with-engine $(BIN)/harness images

# All tests but the soak, with whatever they need started.
test: ready
	scripts/with-engine scripts/test

# The tests that take little and need no engine, no browser and no server: half a minute to a minute.
quick: .venv/ready
	scripts/test quick

# Sweeps of many repeats: thirty kills, twenty calibrations, whole collections, thousands of damaged files; hours.  Before a release.
soak: ready
	scripts/test-tools
	scripts/with-engine scripts/test soak

# Format, lint, strict types, import contract.
check: .venv/ready
	scripts/check

# What measuring costs: with harness and without, side by side in one run.
bench: ready
	scripts/with-engine $(BIN)/python -m benchmarks.overhead

# How long a table of 10,000 stored jobs takes at other prices; a quarter of an hour.
bench-reprice: .venv/ready
	$(BIN)/python -m benchmarks.reprice

# How long 1,000 bootstraps of a Frechet distance take; two minutes.
bench-frechet: .venv/ready
	$(BIN)/python -m benchmarks.frechet

# The figures of docs/method/frechet.md: systems of different strength on SciFact, and what a distance makes of them.
frechet: ready
	scripts/with-engine scripts/frechet

# The figures of the architecture.
figures:
	@python3 scripts/figures

# The generated pages and pictures of docs/, and a site that can be searched: build/site/index.html.
docs: .venv/ready
	$(BIN)/python -m scripts.docs.generate
	$(BIN)/python -m scripts.docs.make_pictures
	$(BIN)/zensical build --clean --strict

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Pin the newest versions that pyproject.toml allows, and of those the ones that running takes (needs uv).
lock: .venv/ready
	uv pip compile pyproject.toml --group dev --all-extras --generate-hashes --universal --python-version 3.11 --no-emit-index-url --no-annotate --upgrade -o requirements.lock
	uv pip compile pyproject.toml --extra aws -c requirements.lock --generate-hashes --universal --python-version 3.11 --no-emit-index-url --no-annotate -o harness/remote/requirements.lock

# Says in one line what is about to be installed as root, then makes the environment and installs the engine side by side.
ready:
	@scripts/with-engine --installs $(PYTHON)
	@$(MAKE) --silent --no-print-directory -j 2 .venv/ready engine

# Installed, not started: with-engine starts it for as long as it is used.
engine:
	@scripts/with-engine --install

.venv/ready: requirements.lock pyproject.toml
	scripts/make-venv $(PYTHON)
