# Two commands for people: `make serve` serves a model, `make test` proves the tree. Each installs what is
# missing (Debian packages), says what it does, builds and runs. Everything else is a CMake preset.
.PHONY: help serve test setup build cuda cuda-toolkit test-cuda asan tsan fuzz faults mutants clients generations hub-faults soak bench deb tarball packages-check hostile host clean

JOBS ?= $(shell nproc)
# What tests say that they need (cmake/module.cmake).
HALF_CORES = $(shell echo $$((2 * $(JOBS))))
MODEL ?=

help:
	@echo "make serve [MODEL=file.gguf]  build, serve over HTTP, print the address"
	@echo "make test [CUDA=OFF]          build, then run every test; OFF: without the CUDA backend"
	@echo "make cuda [ARCHITECTURES=..]  build with the CUDA backend for this machine's GPUs, those named, or all (installs its compiler into build/)"
	@echo "make serve DEVICE=cuda        the same, and serve on the GPU"
	@echo "make test-cuda [AS=8.6]       every kernel against its specification, and audits, on this machine's GPU"
	@echo "make asan | tsan              the tests under sanitizers"
	@echo "make mutants [COUNT=8] [SEED=1] [MINUTES=20]  break that many promises, one at a time: a test must fail each time"
	@echo "make faults [SCHEDULES=10000] random schedules of faults under tier and store, every request judged"
	@echo "make fuzz [SECONDS=60]        every fuzz target for that long (clang 19)"
	@echo "make clients                  more clients than the tests have: agents, frameworks, evaluation (installs them)"
	@echo "make generations TOKENIZERS='A B' [DATA=F]  random logits under 500 schemas, judged by jsonschema"
	@echo "make hub-faults [COUNT=1000] [SEED=1]  schedules of faults between pull and a hub: right or absent"
	@echo "make hostile [ATTACKS='A B']  each attack from 1 and 16 clients: what others wait, and memory (a quiet machine)"
	@echo "make host                     what a step costs beside the forward pass, and with states of 150 MiB (a quiet machine)"
	@echo "make soak                     the server under load: 1,000 streams, disconnects, slow clients"
	@echo "make deb [DEVICE=cuda]        a Debian package in build/packages: reprise, or reprise-cuda"
	@echo "make tarball                  a program that needs the C library alone, with its files, in build/packages"
	@echo "make packages-check           lint packages and manifests, install in clean systems, ask for a chat, remove; run the tarball (root)"
	@echo "make clean                    remove build/"

setup:
	@tools/setup.sh build

build: setup
	@cmake --preset release >/dev/null && cmake --build --preset release -j $(JOBS)

DEVICE ?= auto
serve: $(if $(findstring cuda,$(DEVICE)),cuda,build)
	@tools/serve.sh "$(MODEL)" "$(DEVICE)"

cuda-toolkit:
	@tools/setup.sh cuda
	@tools/cuda_toolkit.sh build/cuda-toolkit

# ARCHITECTURES: of GPUs, "80-real;86-real" or others, or all; without, this machine's (tools/cuda_architectures.sh)
ARCHITECTURES ?=
cuda: cuda-toolkit
	@architectures=$$(tools/cuda_architectures.sh "$(ARCHITECTURES)") && \
	 cmake --preset cuda -DREPRISE_CUDA_ARCHITECTURES="$$architectures" >/dev/null && cmake --build --preset cuda -j $(JOBS)

# AS: a compute capability, 8.6: the GPU has nothing that such a one has not got. ARCHITECTURES=80-virtual: code for 8.0,
# which the driver compiles for any later GPU. Together they test what runs on cards that are not here (docs/devices.md).
AS ?=
test-cuda: cuda-toolkit
	@tools/setup.sh test
	@architectures=$$(tools/cuda_architectures.sh "$(ARCHITECTURES)") && \
	 cmake --preset dev -DREPRISE_CUDA=ON -DREPRISE_CUDA_ARCHITECTURES="$$architectures" >/dev/null && \
	 cmake --build --preset dev -j $(JOBS) --target cuda_test law_test sample_test reprise
	@$(as) build/dev/src/kernels/cuda/cuda_test
	@$(as) build/dev/src/sample/sample_test --gtest_filter='DeviceChoice.*'
	@$(as) REPRISE_LAW_DEVICE=cuda build/dev/src/model/law_test --gtest_filter='*EverySplit*:*EveryCompany*:*EveryDraft*'
	@$(as) tools/test_cuda.sh build/dev/reprise
test-cuda: as = $(if $(AS),REPRISE_GPU_AS=$(AS))

# With the CUDA backend: it compiles and its machine code is read without a GPU. `make test CUDA=OFF` leaves it out.
CUDA ?= ON
test: $(if $(filter ON,$(CUDA)),cuda-toolkit)
	@tools/setup.sh test
	@cmake --preset dev -DREPRISE_CUDA=$(CUDA) >/dev/null && cmake --build --preset dev -j $(JOBS)
	@ctest --preset dev -j $(HALF_CORES)

asan tsan:
	@tools/setup.sh test
	@cmake --preset $@ >/dev/null && cmake --build --preset $@ -j $(JOBS)
	@ctest --preset $@ -j $(HALF_CORES)

# Eight mutants, each built and tested, in twenty minutes on two cores. Another SEED chooses others. Build times decide
# how many are judged: COUNT and MINUTES bound the run, whatever the machine.
COUNT ?= 8
SEED ?= 1
MINUTES ?= 20
mutants:
	@tools/setup.sh test
	@cmake --preset dev >/dev/null && cmake --build --preset dev -j $(JOBS)
	@python3 tools/mutants.py --count $(COUNT) --seed $(SEED) --minutes $(MINUTES)

SCHEDULES ?= 10000
faults:
	@tools/setup.sh test
	@cmake --preset dev >/dev/null && cmake --build --preset dev -j $(JOBS) --target tier_test
	@REPRISE_FAULT_SCHEDULES=$(SCHEDULES) build/dev/src/tier/tier_test --gtest_filter='FaultSchedules.*'

SECONDS ?= 60
fuzz:
	@tools/setup.sh fuzz
	@cmake --preset fuzz >/dev/null && cmake --build --preset fuzz -j $(JOBS)
	@tools/fuzz.sh build/fuzz $(SECONDS)

clients:
	@tools/setup.sh test
	@cmake --preset dev >/dev/null && cmake --build --preset dev -j $(JOBS) --target reprise
	@tools/clients.sh more
	@python3 tests/clients/more/run.py build/dev/reprise

# DATA: MaskBench's folder of schemas; without it random ones.
generations:
	@tools/setup.sh test
	@cmake --preset dev >/dev/null && cmake --build --preset dev -j $(JOBS) --target grammar_probe
	@tools/clients.sh
	@for form in "" --tools; do \
	  build/clients/venv/bin/python tests/grammar_generation_test.py build/dev/tests/grammar_probe $(TOKENIZERS) \
	    $(if $(DATA),--schemas $(DATA)) --schema-count 500 --count 2 $$form || exit 1; done

# Models by name: COUNT random schedules of faults between `reprise pull` and a hub.
hub-faults: COUNT = 1000
hub-faults:
	@tools/setup.sh test
	@cmake --preset dev >/dev/null && cmake --build --preset dev -j $(JOBS) --target reprise
	@PYTHONDONTWRITEBYTECODE=1 python3 tests/hub/fault_schedules.py build/dev/reprise $(COUNT) $(SEED)

soak:
	@tools/setup.sh test
	@cmake --preset dev >/dev/null && cmake --build --preset dev -j $(JOBS) --target soak
	@build/dev/tests/soak long

# Times: for a machine that does nothing else. What they demand is asserted as counted work by tests (docs/notes).
hostile: build
	@PYTHONDONTWRITEBYTECODE=1 python3 tests/clients/hostile_bench.py build/release/reprise --check $(ATTACKS)

LARGE_STATE = --state-mib 150 --running 4 --waiting 4 --entries 16 --documents 4 --tokens 10000 --runs 3
host: build
	@build/release/reprise bench host
	@build/release/reprise bench host $(LARGE_STATE)

bench:
	@tools/setup.sh test
	@cmake --preset bench >/dev/null && cmake --build --preset bench -j $(JOBS)

# For all of Debian 12, 13 and Ubuntu 24.04 when it is made on Debian 12 (docs/adr/0013-packages.md).
DEB = deb$(if $(findstring cuda,$(DEVICE)),-cuda)
deb: $(if $(findstring cuda,$(DEVICE)),cuda-toolkit)
	@tools/setup.sh deb
	@cmake --preset $(DEB) $(if $(findstring cuda,$(DEVICE)),-DREPRISE_CUDA_ARCHITECTURES="$$(tools/cuda_architectures.sh "$(or $(ARCHITECTURES),all)")") >/dev/null
	@cmake --build --preset $(DEB) -j $(JOBS)
	@packaging/deb.sh build/$(DEB) $(DEB:deb%=reprise%)

tarball:
	@tools/setup.sh build
	@cmake --preset static >/dev/null && cmake --build --preset static -j $(JOBS)
	@packaging/tarball.sh build/static

# SUITES: bookworm trixie noble, or some of them
packages-check: deb tarball
	@tools/setup.sh packages
	@packaging/lint.sh build/packages/*.deb
	@packaging/check.py build/packages/reprise_*.deb build/packages/reprise-*.tar.gz $(SUITES)

clean:
	rm -rf build
