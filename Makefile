# Everything runs in a virtual environment of its own; the first target that needs it sets it up.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
OUT    ?= out
DATA   ?= $(if $(SPARSIGHT_DATA),$(SPARSIGHT_DATA),../shared/data)/kitti

# The page of `recall serve` is tested in it; without it these tests skip themselves.
BROWSER := chromium

# What Open3D's shared libraries ask for; nothing else needs system packages.
SYSTEM_PACKAGES := libusb-1.0-0 libgl1 libegl1 libx11-6 libgomp1 libudev1

.PHONY: help setup demo test test-all bench lint format clean browser sbom wheels release

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(READY)  ## virtual environment with everything for demos, tests and checks

$(READY): pyproject.toml Makefile
	@$(MAKE) --no-print-directory system-packages
	$(PYTHON) -m venv $(VENV)
	# A bare "torch" range would fetch gigabytes of CUDA libraries; this pin has a CPU build.
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet --editable ".[dev]"
	# Built from source: without a C++ compiler its comparisons skip themselves.
	$(BIN)/pip install --quiet "ilupp>=1.0" >/dev/null 2>&1 || echo "ilupp was not built (no C++ compiler?): its comparisons are skipped"
	touch $(READY)

# Nobody is asked for a password: root installs, others are told what to run.
.PHONY: system-packages
system-packages:
	@command -v dpkg >/dev/null || exit 0; \
	missing=""; for name in $(SYSTEM_PACKAGES); do dpkg -s $$name >/dev/null 2>&1 || missing="$$missing $$name"; done; \
	$(PYTHON) -c "import ensurepip" 2>/dev/null || missing="$$missing python3-venv"; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ]; then \
	  echo "installing$$missing"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing >/dev/null; \
	elif [ -n "$$missing" ]; then \
	  echo "missing:$$missing; without them the simulator and the 3D window do not work. To install them, run"; \
	  echo "    sudo apt-get install$$missing"; \
	fi

demo: $(READY)  ## detect objects in sample scans; then drive, remember and answer
	$(BIN)/perceive demo --out $(OUT)/demo
	$(BIN)/python demos/remember.py --short --out $(OUT)/remember

.PHONY: docs
docs: $(READY)  ## the documentation as a site that works offline, in build/site/VERSION
	$(BIN)/python docs/website/build.py

browser:
	@command -v $(BROWSER) >/dev/null || if [ "$$(id -u)" = 0 ]; then \
	  echo "installing $(BROWSER)"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(BROWSER) >/dev/null; } \
	  || echo "$(BROWSER) was not installed: its tests are skipped"; \
	else \
	  echo "no $(BROWSER): the tests of the page are skipped. To have them, run"; \
	  echo "    sudo apt-get install $(BROWSER)"; \
	fi

# Two workers share the cores, with a thread each; what depends on threads is tested with numbers of its own.
# What is compiled is kept, whatever the environment says: to rewrite the tests' assertions takes longer than
# all else that collects them, and programs that tests start would compile the packages each time.
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n 2 --dist loadfile

test: $(READY) browser  ## lint, types and the default test suite
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	# Types are checked beside the tests: some of these wait for processes, and leave a core idle.
	$(BIN)/mypy & types=$$!; $(PYTEST); tests=$$?; wait $$types && exit $$tests

test-all: $(READY) browser  ## also the slow tests
	$(PYTEST) -m "slow or not slow"

bench: $(READY)  ## sparse against dense on this machine, results in build/benchmarks
	$(BIN)/python -m benchmarks.detector.detector --device cpu --data "$(DATA)"
	$(BIN)/python -m benchmarks.sparse.conv --device cpu --data "$(DATA)"
	$(BIN)/python -m benchmarks.detector.nms --device cpu
	$(BIN)/python -m benchmarks.sparse.spmv --device cpu
	$(BIN)/python -m benchmarks.sparse.block_spmm --device cpu
	$(BIN)/python -m benchmarks.sparse.assembly --device cpu
	$(BIN)/python -m benchmarks.sparse.solvers --device cpu
	$(BIN)/python -m benchmarks.sparse.formats --device cpu

lint: $(READY)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)  ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# An environment with the wheel and nothing else is what is listed; the tool stays out of it.
SBOM ?= build/sbom
sbom:  ## what a wheel brings: build/sbom/sparsight.cdx.json (CycloneDX) and licences.md
	$(PYTHON) -m venv --clear $(SBOM)/tools
	$(SBOM)/tools/bin/pip install --quiet "cyclonedx-bom>=7,<8"
	$(PYTHON) -m venv --clear --without-pip $(SBOM)/user
	$(SBOM)/tools/bin/pip --python $(SBOM)/user/bin/python install --quiet torch==2.13.0
	$(SBOM)/tools/bin/pip --python $(SBOM)/user/bin/python install --quiet .
	$(SBOM)/tools/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible \
	  --output-format JSON --output-file $(SBOM)/environment.json $(SBOM)/user/bin/python
	$(SBOM)/tools/bin/python release/report.py $(SBOM)/environment.json $(SBOM)

# Building needs neither torch nor the packages of developers.
BUILDER := build/tools
$(BUILDER)/.ready:
	$(PYTHON) -m venv --clear $(BUILDER)
	$(BUILDER)/bin/pip install --quiet build ziglang wheel
	touch $@

WHEELS ?= build/wheels
wheels: $(BUILDER)/.ready  ## wheels with compiled parts for x86_64 and aarch64, in build/wheels
	$(BUILDER)/bin/python release/platform_wheel.py --out $(WHEELS) --machine x86_64
	$(BUILDER)/bin/python release/platform_wheel.py --out $(WHEELS) --machine aarch64

# KEY=~/.ssh/id_ed25519 signs; RELEASE_OPTIONS=--rehearse tries it on a tree that is not ready.
RELEASE ?= build/release
release: $(BUILDER)/.ready  ## signed sdist and wheels in build/release; needs KEY, a private SSH key
	@test -n "$(KEY)" || { echo "Name the key that signs: make release KEY=~/.ssh/id_ed25519"; exit 2; }
	$(BUILDER)/bin/python release/make_release.py --out $(RELEASE) --key $(KEY) $(RELEASE_OPTIONS)

clean:  ## remove the virtual environment and outputs
	rm -rf $(VENV) $(OUT) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
